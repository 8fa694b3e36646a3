//! What the config says of one tool: the exact name first, then the longest pattern.

mod pattern;

use std::sync::Arc;

use crate::config::{ToolPolicy, ToolRule};

pub use pattern::Pattern;

/// The policies of one server's tools.
#[derive(Clone, Debug)]
pub struct Policies(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    defaults: Arc<ToolPolicy>,
    /// The most specific first.
    rules: Vec<(Pattern, Arc<ToolPolicy>)>,
}

impl Policies {
    /// The policies for the tools of the server `name`.
    ///
    /// Of several rules that match a tool an exact name wins over a pattern, a longer pattern over a
    /// shorter one, a rule for this server over one for all, and then the one written first.
    pub fn for_server(name: &str, defaults: &ToolPolicy, rules: &[ToolRule]) -> Self {
        let applies = |rule: &&ToolRule| rule.server.as_deref().is_none_or(|server| server == name);
        let mut rules: Vec<_> = rules.iter().filter(applies).map(|rule| (Pattern::new(&rule.pattern), rule)).collect();
        // A stable sort, so that rules of equal rank stay in the order of the file.
        rules.sort_by_key(|(pattern, rule)| std::cmp::Reverse((pattern.weight(), rule.server.is_some())));
        let rules = rules.into_iter().map(|(pattern, rule)| (pattern, Arc::new(rule.policy.clone()))).collect();
        Self(Arc::new(Inner { defaults: Arc::new(defaults.clone()), rules }))
    }

    /// The same policy for every tool.
    pub fn uniform(policy: ToolPolicy) -> Self {
        Self(Arc::new(Inner { defaults: Arc::new(policy), rules: Vec::new() }))
    }

    /// What holds for every tool that no rule names, and for calls of other methods.
    pub fn defaults(&self) -> &Arc<ToolPolicy> {
        &self.0.defaults
    }

    /// All policies: the defaults, then the rules.
    pub fn all(&self) -> impl Iterator<Item = &ToolPolicy> {
        let rules = self.0.rules.iter().map(|(_, policy)| policy);
        std::iter::once(&self.0.defaults).chain(rules).map(AsRef::as_ref)
    }

    /// The policy of the tool `name`.
    pub fn of(&self, name: &str) -> &Arc<ToolPolicy> {
        self.rule(name).map_or(&self.0.defaults, |(_, policy)| policy)
    }

    /// The `match` of the rule that the policy of the tool `name` comes from; `None` if it comes from the defaults.
    pub fn pattern_of(&self, name: &str) -> Option<&Pattern> {
        self.rule(name).map(|(pattern, _)| pattern)
    }

    fn rule(&self, name: &str) -> Option<&(Pattern, Arc<ToolPolicy>)> {
        self.0.rules.iter().find(|(pattern, _)| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rule(pattern: &str, server: Option<&str>, seconds: u64) -> ToolRule {
        let policy = ToolPolicy { after: Duration::from_secs(seconds), ..ToolPolicy::default() };
        ToolRule { pattern: pattern.to_owned(), server: server.map(str::to_owned), policy }
    }

    #[test]
    fn the_most_specific_rule_wins() {
        let rules = [
            rule("*", None, 1),
            rule("export_*", None, 2),
            rule("export_*", Some("reports"), 3),
            rule("export_all_*", None, 4),
            rule("export_all_now", None, 5),
            rule("export_all_now", Some("elsewhere"), 6),
            rule("*", None, 7),
        ];
        let policies = Policies::for_server("reports", &ToolPolicy::default(), &rules);
        let table = [("anything", 1), ("export_one", 3), ("export_all_later", 4), ("export_all_now", 5)];
        for (tool, seconds) in table {
            assert_eq!(policies.of(tool).after, Duration::from_secs(seconds), "{tool}");
        }
    }

    #[test]
    fn a_tool_without_a_rule_gets_the_defaults() {
        let policies =
            Policies::for_server("a", &ToolPolicy::default(), &[rule("x", None, 1), rule("y", Some("b"), 2)]);
        assert_eq!(**policies.of("y"), ToolPolicy::default());
    }
}
