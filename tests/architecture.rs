//! The architecture, as a test: ranks, sizes of files and functions, and where a crate's name may appear.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that meets something odd is to stop there")]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::Visit;

/// The rank of every module (see `src/lib.rs`). A module imports only from a lower rank.
const RANKS: &[(&str, u8)] = &[
    ("clock", 0),
    ("jobs", 0),
    ("shared_map", 0),
    ("telemetry", 0),
    ("visitors", 0),
    ("wakes", 0),
    ("protocol", 1),
    ("config", 1),
    ("history", 2),
    ("share", 2),
    ("task", 2),
    ("store", 3),
    ("policy", 3),
    ("runner", 4),
    ("tasks", 5),
    ("upstream", 5),
    ("lists", 5),
    ("front", 6),
    ("admin", 6),
    ("app", 7),
    ("cli", 8),
    ("fuzzing", 9),
    ("lib", 9),
    ("main", 9),
    ("durable_sync", 9),
];

/// The one file that may name a crate.
const CONFINED: &[(&str, &str)] =
    &[("sled", "store/engine.rs"), ("dashmap", "shared_map.rs"), ("libc", "durable_sync.rs")];

/// Files of tests that may wait for a time to pass: how often, and why nothing can be waited for instead.
const WAITS: &[(&str, usize, &str)] = &[
    ("tests/limits/main.rs", 1, "that progress keeps a run from being idle needs progress over a time"),
    ("tests/proxy/keys.rs", 1, "a kill comes at any moment"),
    ("tests/proxy/kill/mod.rs", 5, "a kill comes at any moment"),
    ("tests/proxy/life.rs", 1, "a task is forgotten when its time is over, which nobody is told"),
    ("tests/proxy/main.rs", 1, "for numbers of another process, which give no sign"),
    ("tests/proxy/scripted.rs", 1, "it is a tool that takes its time"),
    ("tests/store/crash.rs", 1, "so that a writer whose disk has failed, until it is killed, does not fill its log"),
];

const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 100;

struct Source {
    path: PathBuf,
    module: String,
    text: String,
    syntax: syn::File,
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let first = path.strip_prefix(&root).unwrap().components().next().unwrap();
                let module = Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned();
                let text = fs::read_to_string(&path).unwrap();
                let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.push(Source { path, module, text, syntax });
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// Collects the paths that a file names, with whether they stand in test code.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn of(source: &Source) -> Vec<Vec<String>> {
        let mut paths = Self::default();
        paths.visit_file(&source.syntax);
        paths.0
    }

    fn tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                let mut prefix = prefix.to_vec();
                prefix.push(path.ident.to_string());
                self.tree(&prefix, &path.tree);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(prefix, item)),
            syn::UseTree::Name(name) => self.0.push([prefix, &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(rename) => self.0.push([prefix, &[rename.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.0.push(prefix.to_vec()),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

/// Counts the waits for a time to pass, but for those under a clock that is paused.
#[derive(Default)]
struct TimedWaits(usize);

impl TimedWaits {
    const NAMES: [&str; 4] = ["sleep", "sleep_until", "interval", "park_timeout"];

    fn is_paused(attributes: &[syn::Attribute]) -> bool {
        attributes.iter().any(|attribute| {
            let syn::Meta::List(list) = &attribute.meta else { return false };
            list.tokens.to_string().contains("start_paused = true")
        })
    }
}

impl<'ast> Visit<'ast> for TimedWaits {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !Self::is_paused(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && let Some(last) = path.path.segments.last()
            && Self::NAMES.iter().any(|name| last.ident == name)
        {
            self.0 += 1;
        }
        syn::visit::visit_expr_call(self, call);
    }

    /// What is in a macro is not parsed.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string();
        let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(').collect();
        self.0 += words.windows(2).filter(|pair| Self::NAMES.contains(&pair[0]) && pair[1].starts_with('(')).count();
    }
}

/// Collects the modules of a file that are for tests only.
#[derive(Default)]
struct TestModules<'ast>(Vec<&'ast syn::ItemMod>);

impl<'ast> Visit<'ast> for TestModules<'ast> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident == "tests" {
            self.0.push(item);
        } else {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

/// Collects functions that are too long.
#[derive(Default)]
struct LongFunctions(Vec<String>);

impl LongFunctions {
    fn look(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = block.span().end().line - block.span().start().line + 1;
        if lines > LONGEST_FUNCTION {
            self.0.push(format!("{name}: {lines} lines"));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.look(&item.sig.ident, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.look(&item.sig.ident, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }
}

#[test]
fn a_module_imports_only_from_a_lower_rank() {
    let ranks: BTreeMap<_, _> = RANKS.iter().copied().collect();
    let mut faults = Vec::new();
    for source in sources("src") {
        let rank = ranks.get(source.module.as_str()).unwrap_or_else(|| panic!("no rank for {}", source.module));
        for path in Paths::of(&source) {
            let target = match path.as_slice() {
                [root, module, ..] if root == "crate" || root == "raincheck" => module,
                _ => continue,
            };
            let Some(other) = ranks.get(target.as_str()) else { continue };
            if *target != source.module && other >= rank {
                faults.push(format!("{} imports {target}", source.path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn crates_with_a_home_are_named_nowhere_else() {
    let mut faults = Vec::new();
    for source in sources("src") {
        for path in Paths::of(&source) {
            for (name, home) in CONFINED {
                if path.len() > 1 && path[0] == *name && !source.path.ends_with(Path::new("src").join(home)) {
                    faults.push(format!("{} names {name}", source.path.display()));
                }
            }
            let spawns = path.iter().rev().take(2).rev().map(String::as_str).eq(["tokio", "spawn"])
                || path.iter().map(String::as_str).eq(["tokio", "task", "spawn"]);
            if spawns && source.module != "jobs" {
                faults.push(format!("{} spawns without an owner", source.path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn only_one_file_has_unsafe_code() {
    for source in sources("src") {
        let allows = source.text.contains("allow(unsafe_code") || source.text.contains("expect(unsafe_code");
        assert!(!allows || source.module == "durable_sync", "{}", source.path.display());
    }
}

#[test]
fn files_and_functions_are_short() {
    let mut faults = Vec::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            faults.push(format!("{}: {lines} lines", source.path.display()));
        }
    }
    for source in sources("src") {
        let mut long = LongFunctions::default();
        long.visit_file(&source.syntax);
        faults.extend(long.0.into_iter().map(|fault| format!("{}: {fault}", source.path.display())));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn tests_wait_for_signs_and_not_for_a_time_to_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let path = source.path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let mut waits = TimedWaits::default();
        let is_test = path.starts_with("tests/") || path.ends_with("tests.rs") || path.contains("/tests/");
        if is_test && !path.starts_with("tests/interop/") {
            waits.visit_file(&source.syntax);
        } else if !is_test {
            let mut modules = TestModules::default();
            modules.visit_file(&source.syntax);
            modules.0.into_iter().for_each(|module| waits.visit_item_mod(module));
        }
        if waits.0 > 0 {
            found.insert(path, waits.0);
        }
    }
    let allowed: BTreeMap<String, usize> = WAITS.iter().map(|(path, count, _)| ((*path).to_owned(), *count)).collect();
    assert_eq!(found, allowed, "left: what waits for a time; right: what may, with its reason in WAITS");
}

/// The names of the functions of a file, however deep.
#[derive(Default)]
struct Functions(HashSet<String>);

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.0.insert(function.sig.ident.to_string());
        syn::visit::visit_item_fn(self, function);
    }

    /// Property tests are functions in a macro.
    fn visit_macro(&mut self, called: &'a syn::Macro) {
        let text = called.tokens.to_string();
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', ' ']).next());
        self.0.extend(names.map(str::to_owned));
    }
}

#[test]
fn every_field_case_has_tests_that_exist() {
    let mut functions: BTreeMap<PathBuf, HashSet<String>> = BTreeMap::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let mut found = Functions::default();
        found.visit_file(&source.syntax);
        functions.insert(source.path, found.0);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/field-cases.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let (mut faults, mut cases) = (Vec::new(), 0);
    for row in rows {
        let [_, case, _, tests, _] = row.split('|').collect::<Vec<_>>()[..] else { panic!("no row: {row}") };
        let tests: Vec<_> = tests.split('`').filter(|part| part.contains("::")).collect();
        assert!(!tests.is_empty(), "{case} has no test");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            if !functions.get(&root.join(file)).is_some_and(|functions| functions.contains(name)) {
                faults.push(format!("{case}: {test}"));
            }
        }
        cases += 1;
    }
    assert!(faults.is_empty(), "tests that do not exist: {faults:#?}");
    assert!(cases >= 53, "{cases} cases");
}
