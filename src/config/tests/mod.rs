//! Whole texts in, configurations or faults out.

mod faults;
mod notes;

use std::time::Duration;

use super::*;
use faults::BAD;

const SERVER: &str = "[[server]]\nname = \"s\"\ncommand = [\"true\"]\n";

fn read(text: &str) -> Config {
    parse(text, &Environment::default()).unwrap_or_else(|faults| panic!("{faults}"))
}

fn faults(text: &str, environment: &Environment) -> Vec<Fault> {
    match parse(text, environment) {
        Ok(_) => panic!("no fault found in:\n{text}"),
        Err(ConfigFaults(faults)) => faults,
    }
}

#[test]
fn every_fault_is_reported_with_its_path() {
    for (text, expected) in BAD {
        let mut found = faults(&format!("{text}\n{SERVER}"), &Environment::default());
        for (path, part) in *expected {
            let at = found.iter().position(|fault| fault.path == *path && fault.message.contains(part));
            let at = at.unwrap_or_else(|| panic!("no {path} with {part:?} in {found:#?}"));
            found.remove(at);
        }
        let syntax = expected.iter().any(|(path, _)| *path == "syntax");
        assert!(found.is_empty() || syntax, "unexpected for {text:?}: {found:#?}");
    }
}

#[test]
fn of_a_text_that_is_broken_throughout_the_first_errors_are_told() {
    let found = faults(&"[log]\n= 1\n".repeat(200), &Environment::default());
    assert_eq!(found.len(), 51);
    assert!(found.iter().any(|fault| fault.message.ends_with("more like these")), "{found:?}");
}

#[test]
fn a_fault_names_its_line() {
    let found = faults(&format!("{SERVER}\n[defaults]\n\nafter = \"x\"\n"), &Environment::default());
    assert_eq!(found[0].line, Some(7));
    assert_eq!(found[0].to_string().split(": ").next(), Some("defaults.after (line 7)"));
}

#[test]
fn an_open_door_is_told_with_the_line_of_its_address_unless_a_variable_has_set_it() {
    let text = format!("{SERVER}[listen]\nhttp = \"0.0.0.0:80\"\n");
    assert_eq!(faults(&text, &Environment::default())[0].line, Some(5));
    let set = Environment::of([("RAINCHECK_LISTEN_HTTP", "0.0.0.0:81")]);
    assert_eq!(faults(&text, &set)[0].line, None);
}

#[test]
fn an_empty_text_asks_for_a_server() {
    assert_eq!(faults("", &Environment::default())[0].path, "server");
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let config = read(SERVER);
    assert_eq!(config.listen.http.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store.path.to_str(), Some("raincheck.data"));
    assert_eq!(config.defaults, ToolPolicy::default());
    assert_eq!(config.owner.from, OwnerSource::Authorization);
    assert!(!config.owner.authenticates());
}

#[test]
fn a_rule_changes_only_what_it_names() {
    let config = read(&format!(
        "{SERVER}[defaults]\ntimeout = \"40m\"\n[[tool]]\nmatch = \"x_*\"\nmode = \"task\"\nkeep = \"forever\"\nmax_running = 2\n"
    ));
    let rule = &config.tools[0];
    let expected = ToolPolicy {
        mode: Mode::Task,
        timeout: Duration::from_mins(40),
        keep: None,
        max_running: Some(2),
        ..ToolPolicy::default()
    };
    assert_eq!((rule.pattern.as_str(), &rule.server, &rule.policy), ("x_*", &None, &expected));
}

#[test]
fn a_flag_comes_before_a_variable_and_a_variable_before_the_file() {
    let text =
        format!("{SERVER}[listen]\nhttp = \"127.0.0.1:1\"\n[store]\npath = \"file\"\n[defaults]\nafter = \"1s\"\n");
    let environment = Environment::of([
        ("RAINCHECK_LISTEN_HTTP", "127.0.0.1:2"),
        ("RAINCHECK_STORE_PATH", "variable"),
        ("RAINCHECK_LIMITS_BODY", "1MiB"),
        ("RAINCHECK_LIMITS_CALLS", "7"),
        ("RAINCHECK_OWNER_ALLOW_ANONYMOUS", "true"),
        ("RAINCHECK_LISTEN_ALLOWED_HOSTS", "A.example, b.example"),
        ("RAINCHECK_HANDLES", "not ours"),
        ("RAINCHECK_STORE_SERVICE_HOST", "from an orchestrator"),
    ])
    .with_flag("listen.http", "--listen", "127.0.0.1:3".to_owned());
    let config = parse(&text, &environment).unwrap();
    assert_eq!(config.listen.http.port(), 3);
    assert_eq!(config.store.path.to_str(), Some("variable"));
    assert_eq!(config.defaults.after, Duration::from_secs(1));
    assert_eq!((config.limits.body, config.limits.calls), (1 << 20, 7));
    assert!(config.owner.allow_anonymous);
    assert_eq!(config.listen.allowed_hosts, ["a.example", "b.example"]);
}

#[test]
fn a_wrong_variable_is_a_fault_that_names_it() {
    let environment = Environment::of([
        ("RAINCHECK_LISTEN_HTTP", "nowhere"),
        ("RAINCHECK_LISTEN_HTPP", "127.0.0.1:1"),
        ("RAINCHECK_OWNER_ALLOW_ANONYMOUS", "yes"),
    ]);
    let found = faults(SERVER, &environment);
    let paths: Vec<_> = found.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["listen.http", "owner.allow_anonymous", "RAINCHECK_LISTEN_HTPP"]);
    assert!(found[0].message.ends_with("(set by RAINCHECK_LISTEN_HTTP)"), "{}", found[0]);
    assert!(found[2].message.contains("did you mean RAINCHECK_LISTEN_HTTP?"), "{}", found[2]);
}

#[test]
fn secrets_come_from_variables_and_files_and_are_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret-file\n").unwrap();
    let text = format!(
        "[[owner.token]]\nname = \"ann\"\ntoken_file = {file:?}\n[[owner.token]]\nname = \"bo\"\ntoken_env = \"RAINCHECK_OWNER_BO\"\n\
         [[server]]\nname = \"s\"\nurl = \"http://h/mcp\"\nheaders_env = {{ authorization = \"KEY\" }}\nheaders_file = {{ x-key = {file:?} }}\n\
         [[server]]\nname = \"t\"\ncommand = [\"x\"]\nenv = {{ A = \"s3cret-plain\" }}\nenv_file = {{ B = {file:?} }}\n"
    );
    let environment = Environment::of([("KEY", "Bearer s3cret-env"), ("RAINCHECK_OWNER_BO", "s3cret-bo")]);
    let config = parse(&text, &environment).unwrap();
    let tokens: Vec<_> = config.owner.tokens.iter().map(|token| (token.name.as_str(), token.token.clone())).collect();
    let plain = |text: &str| TokenProof::Plain(text.to_owned());
    assert_eq!(tokens, [("ann", plain("s3cret-file")), ("bo", plain("s3cret-bo"))]);
    let Transport::Http { headers, forward, .. } = &config.servers[0].transport else { panic!() };
    assert_eq!(
        (&headers["authorization"], &headers["x-key"]),
        (&"Bearer s3cret-env".parse().unwrap(), &"s3cret-file".parse().unwrap())
    );
    assert!(forward.is_empty());
    let Transport::Stdio { env, hide, .. } = &config.servers[1].transport else { panic!() };
    assert_eq!((env["A"].as_str(), env["B"].as_str()), ("s3cret-plain", "s3cret-file"));
    assert_eq!(*hide, ["KEY", "RAINCHECK_OWNER_BO"]);
    assert!(!format!("{config:?} {environment:?}").contains("s3cret"));
}

#[test]
fn no_fault_repeats_a_secret() {
    let text = "[[owner.token]]\nname = \"a\"\ntoken = \"s3cret with space\"\n[[owner.token]]\nname = \"b\"\ntoken = \"s3cret with space\"\n\
                [[server]]\nname = \"s\"\nurl = \"http://user:s3cret@h/\"\nheaders = { x = \"s3cret\\u0001\", host = \"s3cret\" }\n\
                [[server]]\nname = \"t\"\ncommand = [\"x\"]\nenv = { A = \"s3cret\\u0000\" }\n";
    let found = faults(text, &Environment::default());
    assert_eq!(found.len(), 7, "{found:#?}");
    assert!(!format!("{found:?}").contains("s3cret"));
}

#[test]
fn credentials_go_on_only_while_nobody_here_checks_them() {
    let forwarded = |head: &str, tail: &str| {
        let config = read(&format!("{head}\n[[server]]\nname = \"s\"\nurl = \"http://h/mcp\"\n{tail}"));
        let Transport::Http { forward, .. } = &config.servers[0].transport else { panic!() };
        forward.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let token = "[[owner.token]]\nname = \"a\"\ntoken = \"t\"";
    assert_eq!(forwarded("", ""), ["authorization"]);
    assert!(forwarded("", "headers = { Authorization = \"fixed\" }").is_empty());
    assert!(forwarded(token, "").is_empty());
    assert!(forwarded("[owner]\nfrom = \"header:x-user\"\ntrusted = [\"10.0.0.1\"]", "").is_empty());
    assert_eq!(forwarded(token, "forward = [\"authorization\", \"x-tenant\"]"), ["authorization", "x-tenant"]);
}

#[test]
fn a_server_over_http_says_which_transport_it_speaks() {
    let transport = |line: &str| {
        let text = format!("[[server]]\nname = \"a\"\nurl = \"http://h/\"\n{line}");
        format!("{:?}", read(&text).servers[0].transport)
    };
    assert!(transport("").starts_with("Http") && transport("transport = \"http\"").starts_with("Http"));
    assert!(transport("transport = \"sse\"").starts_with("Sse"));
}

#[test]
fn a_public_listener_needs_somebody_who_checks_the_callers() {
    let public = "[listen]\nhttp = \"0.0.0.0:80\"\n";
    let url = "[[server]]\nname = \"u\"\nurl = \"http://h/mcp\"\n";
    let open = |text: String| parse(&text, &Environment::default()).is_err();
    assert!(open(format!("{public}{SERVER}")));
    assert!(open(format!("{public}{url}{SERVER}")), "one server that checks does not guard the other");
    assert!(open(format!("{public}{url}forward = []\n")));
    assert!(!open(format!("{public}{url}")), "the server behind gets the credentials and checks them");
    assert!(!open(format!("{public}{SERVER}[owner]\nallow_anonymous = true\n")));
    assert!(!open(format!("{public}{SERVER}[[owner.token]]\nname = \"a\"\ntoken = \"t\"\n")));
    assert!(!open(format!("{public}{SERVER}[owner]\nfrom = \"header:x\"\ntrusted = [\"10.0.0.1\"]\n")));
    assert!(!open(format!("[listen]\nhttp = \"[::1]:80\"\n{SERVER}")));
}

#[test]
fn over_stdio_a_flag_comes_before_the_address_in_the_file_and_logs_are_quiet() {
    let environment = Environment::default().with_flag("listen.stdio", "raincheck stdio", "true".to_owned());
    let text = format!("[listen]\nhttp = \"0.0.0.0:80\"\n{SERVER}");
    let config = parse(&text, &environment).unwrap();
    assert_eq!((config.door, config.store_origin), (Door::Stdio, StoreOrigin::Default));
    assert!(config.log.level.starts_with("warn") && config.store.min_free_bytes == Some(256 << 20));
    assert_eq!(
        read(&format!("[listen]\nstdio = true\n[store]\npath = \"x\"\n{SERVER}")).store_origin,
        StoreOrigin::Chosen
    );
    assert_eq!(read(&format!("[listen]\nstdio = false\nhttp = \"127.0.0.1:1\"\n{SERVER}")).door, Door::Http);
}

#[test]
fn a_command_line_makes_a_configuration_without_a_file() {
    let environment = Environment::default().with_flag("defaults.after", "--after", "2s".to_owned());
    let command = ["npx".to_owned(), "-y".to_owned(), "quote \" and \\ and\nline".to_owned()];
    let config = Config::for_command(&command, &environment).unwrap();
    let Transport::Stdio { command: read, .. } = &config.servers[0].transport else { panic!() };
    assert_eq!((read.as_slice(), config.defaults.after), (command.as_slice(), Duration::from_secs(2)));
    let config = Config::for_url("http://127.0.0.1:3000/mcp", &environment).unwrap();
    let address = "127.0.0.1:8080".parse().unwrap();
    assert_eq!(config.endpoints(address), [("server", "http://127.0.0.1:8080/mcp".to_owned())]);
    let ConfigFaults(found) = Config::for_url("http://u:p@h/", &environment).unwrap_err();
    assert_eq!(found[0].path, "--url");
}

#[test]
fn the_greeting_shows_where_to_connect_and_what_to_try() {
    let environment = Environment::default().with_program("/bin/raincheck".into());
    let demo = parse(EXAMPLE, &environment).unwrap();
    let text = demo.greeting("0.0.0.0:81".parse().unwrap());
    assert!(text.contains("  http://127.0.0.1:81/mcp   (demo)\n"), "{text}");
    assert!(text.ends_with("call http://127.0.0.1:81/mcp slow_report '{}'"), "{text}");
    let two = read(&format!(
        "[listen]\npublic_url = \"https://h.example/\"\n{SERVER}[[server]]\nname = \"t\"\nurl = \"http://h/\"\n"
    ));
    let text = two.greeting("127.0.0.1:81".parse().unwrap());
    assert!(text.contains("https://h.example/s/mcp   (s)\n  https://h.example/t/mcp   (t)\n"), "{text}");
    assert!(text.ends_with("call https://h.example/s/mcp TOOL '{}'"), "{text}");
    for (owner, with) in [
        ("[[owner.token]]\nname = \"a\"\ntoken = \"t\"\n", "-H 'Authorization: Bearer ...' "),
        ("[owner]\nfrom = \"header:x-user\"\ntrusted = [\"10.0.0.1\"]\n", "-H 'x-user: NAME' "),
        ("[owner]\nallow_anonymous = true\n[[owner.token]]\nname = \"a\"\ntoken = \"t\"\n", ""),
    ] {
        let text = read(&format!("{owner}{SERVER}")).greeting("127.0.0.1:81".parse().unwrap());
        assert!(text.ends_with(&format!("call {with}http://127.0.0.1:81/mcp TOOL '{{}}'")), "{text}");
    }
}

#[test]
fn who_asks_as_an_operator_needs_no_variable_of_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raincheck.toml");
    let text = format!(
        "[admin]\nhttp = \"127.0.0.1:9\"\ntoken_env = \"OURS\"\n[[owner.token]]\nname = \"a\"\ntoken_env = \"NOT_SET\"\n{SERVER}"
    );
    std::fs::write(&path, &text).unwrap();
    let environment = Environment::of([("OURS", "t")]);
    let config = super::load_for_operators(&path, &environment).unwrap();
    assert_eq!(config.admin.unwrap().token, Some(TokenProof::Plain("t".to_owned())));
    let ConfigFaults(found) = super::load(&path, &environment).unwrap_err();
    assert_eq!(found[0].path, "owner.token[0].token_env");
    let ConfigFaults(found) = super::load_for_operators(&path, &Environment::default()).unwrap_err();
    assert!(found.len() == 1 && found[0].path == "admin.token_env", "{found:?}");
    std::fs::write(&path, "[admin\n").unwrap();
    assert!(super::load_for_operators(&path, &environment).is_err());
}

#[test]
fn at_self_is_this_program() {
    let text = "[[server]]\nname = \"s\"\ncommand = [\"@self\", \"demo-server\"]\n";
    let config = parse(text, &Environment::default().with_program("/bin/raincheck".into())).unwrap();
    let Transport::Stdio { command, .. } = &config.servers[0].transport else { panic!() };
    assert_eq!(command, &["/bin/raincheck", "demo-server"]);
    assert_eq!(faults(text, &Environment::default())[0].path, "server[0].command");
}

#[test]
fn companion_tools_have_the_names_that_are_written() {
    let text = "[[server]]\nname = \"s\"\nurl = \"http://h/mcp\"\ncompanion_tools = { check = \"poll-Report\" }";
    let names = parse(text, &Environment::default()).unwrap().servers.remove(0).companion_tools;
    assert_eq!([names.check, names.cancel, names.answer], ["poll-Report", "cancel_job", "answer_job"]);
}

/// The example with every setting that it shows as a comment switched on. Prose has a space after the `#`.
fn example_switched_on() -> String {
    let switch = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') && !rest.is_empty() => rest.to_owned(),
        _ => line.to_owned(),
    };
    EXAMPLE.lines().map(switch).collect::<Vec<_>>().join("\n")
}

const EXAMPLE: &str = include_str!("../../../config.example.toml");

#[test]
fn the_example_is_valid_and_serves_the_demo() {
    let config = parse(EXAMPLE, &Environment::default().with_program("/bin/raincheck".into())).unwrap();
    let Transport::Stdio { command, .. } = &config.servers[0].transport else { panic!() };
    assert_eq!(command, &["/bin/raincheck", "demo-server"]);
    assert_eq!(config.listen.http.to_string(), "127.0.0.1:8080");
}

#[test]
fn the_example_shows_every_key() {
    let text = example_switched_on();
    let environment = Environment::default();
    let mut reader = Reader::new(&text, &environment);
    let (table, errors) = DeTable::parse_recoverable(&text);
    assert!(errors.is_empty(), "{errors:?}");
    super::read(&mut reader, table.get_ref());
    let mut shown = std::collections::BTreeSet::new();
    for (name, value) in table.get_ref() {
        let (name, value) = (name.get_ref().to_string(), value.get_ref());
        let elements = value.as_array().into_iter().flatten().filter_map(|element| element.get_ref().as_table());
        for (key, inner) in value.as_table().into_iter().chain(elements).flatten() {
            let tokens = inner.get_ref().as_array().into_iter().flatten().filter_map(|it| it.get_ref().as_table());
            shown.extend(tokens.flatten().map(|(inner, _)| format!("{name}.{}.{}", key.get_ref(), inner.get_ref())));
            shown.insert(format!("{name}.{}", key.get_ref()));
        }
        for (key, inner) in value.as_table().into_iter().flatten() {
            let inner = inner.get_ref().as_table().into_iter().flatten();
            shown.extend(inner.map(|(inner, _)| format!("{name}.{}.{}", key.get_ref(), inner.get_ref())));
        }
        shown.insert(name);
    }
    let missing: Vec<_> = reader.asked().difference(&shown).collect();
    assert!(missing.is_empty(), "the example does not show {missing:?}");
    let unknown: Vec<_> = shown.difference(reader.asked()).collect();
    assert!(unknown.is_empty(), "the example shows what nobody reads: {unknown:?}");
}

#[test]
fn the_example_shows_the_defaults() {
    // What is shown as a comment is the default, except where only one of several ways can be.
    let plain = ["listen", "store", "limits", "log", "shutdown", "defaults"];
    let mut inside = false;
    let mut text = SERVER.to_owned();
    for line in example_switched_on().lines() {
        if line.starts_with('[') {
            inside = plain.iter().any(|name| line.starts_with(&format!("[{name}]")));
        }
        let example_only =
            ["public_url", "allowed_", "min_free", "max_running", "max_queued", "idle_timeout", "rate", "max_result"]
                .iter()
                .any(|key| line.starts_with(key));
        if inside && !example_only {
            text.push_str(line);
            text.push('\n');
        }
    }
    assert!(text.contains("[defaults]") && text.contains("read_timeout"));
    // Who chose the store's path is another matter than which it is, and what means nothing there was not written.
    let shown = Config { store_origin: StoreOrigin::Default, notes: Vec::new(), ..read(&text) };
    assert_eq!(format!("{shown:?}"), format!("{:?}", read(SERVER)));
}

#[test]
fn a_token_may_be_listed_by_its_digest() {
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let config = parse(
        &format!(
            "[[owner.token]]\nname = \"ann\"\nsha256 = \"{digest}\"\n[[server]]\nname = \"s\"\ncommand = [\"x\"]\n"
        ),
        &Environment::default(),
    )
    .unwrap();
    let TokenProof::Sha256(bytes) = &config.owner.tokens[0].token else { panic!() };
    assert_eq!(data_encoding::HEXLOWER.encode(bytes), digest);
    for wrong in ["sha256 = \"abc\"".to_owned(), format!("sha256 = \"{digest}\"\ntoken = \"x\""), String::new()] {
        let text = format!("[[owner.token]]\nname = \"ann\"\n{wrong}\n[[server]]\nname = \"s\"\ncommand = [\"x\"]\n");
        assert!(parse(&text, &Environment::default()).is_err(), "{wrong}");
    }
}

#[test]
fn an_issuer_is_complete_or_refused_with_the_path_of_what_is_wrong() {
    let read = |jwt: &str| {
        let text = format!("[owner.jwt]\n{jwt}\n[[server]]\nname = \"s\"\ncommand = [\"x\"]\n");
        parse(&text, &Environment::default()).map(|config| config.owner).map_err(|faults| faults.to_string())
    };
    let whole = "issuer = \"https://i/\"\naudience = [\"a\"]\njwks = ";
    let owner = read(&format!("{whole}\"https://i/keys\"\nskew = \"5s\"")).unwrap();
    assert!(owner.authenticates());
    assert_eq!(owner.jwt.unwrap().skew, std::time::Duration::from_secs(5));
    assert!(read(&format!("{whole}\"http://127.0.0.1:1/keys\"")).is_ok());
    let file = tempfile::NamedTempFile::new().unwrap();
    let keys = file.path().to_str().unwrap();
    assert!(read(&format!("{whole}{keys:?}")).is_ok());
    for (wrong, path) in [
        (String::new(), "owner.jwt.issuer"),
        (format!("{whole}\"http://i/keys\""), "owner.jwt.jwks"),
        (format!("{whole}\"keys.json\"\nskew = \"1h\""), "owner.jwt.skew"),
        ("issuer = \"i\"\naudience = []\njwks = \"k\"".to_owned(), "owner.jwt.audience"),
        ("issuer = \"\"\naudience = [\"a\"]\njwks = \"k\"".to_owned(), "owner.jwt.issuer"),
    ] {
        let faults = read(&wrong).unwrap_err();
        assert!(faults.contains(path), "{wrong}: {faults}");
    }
}

#[test]
fn an_owner_by_name_has_the_limits_of_all_but_for_what_its_entry_changes() {
    let text = format!(
        "[[owner.token]]\nname = \"ann\"\ntoken = \"a\"\n[owner.limits]\nmax_running = 2\nmax_tasks = 9\nrate = \"6/m\"\nbudget = \"2.5/1h\"\n\
         timeout = \"5m\"\nidle_timeout = \"1m\"\nqueue_timeout = \"2m\"\nask_timeout = \"3m\"\nmax_result = \"1MiB\"\n\
         [[owner.limit]]\nname = \"ann\"\nmax_queued = 5\nbudget = \"none\"\ntimeout = \"none\"\n{SERVER}"
    );
    let rules = read(&text).owner_rules;
    let rate = Some(Rate { count: 6, per: Duration::from_mins(1) });
    let budget = Budget { amount: Cost::from_millionths(2_500_000), per: Duration::from_hours(1) };
    let run = Ceilings {
        timeout: Some(Duration::from_mins(5)),
        idle_timeout: Some(Duration::from_mins(1)),
        queue_timeout: Some(Duration::from_mins(2)),
        ask_timeout: Some(Duration::from_mins(3)),
        max_result: Some(1 << 20),
    };
    let (max_running, budget, max_tasks) = (Some(2), Some(budget), Some(9));
    let all = OwnerLimits { max_running, max_queued: None, max_tasks, rate, budget, run: run.clone() };
    assert_eq!((rules.of(None), rules.of(Some("bo"))), (&all, &all));
    assert_eq!(
        *rules.of(Some("ann")),
        OwnerLimits { max_queued: Some(5), budget: None, run: Ceilings { timeout: None, ..run }, ..all }
    );
    assert!(rules.any_budget() && !OwnerRules::default().any_budget());
    let environment = Environment::of([("RAINCHECK_OWNER_LIMITS_BUDGET", "7/d")]);
    let budget = parse(&text, &environment).unwrap().owner_rules.all.budget.unwrap();
    assert_eq!(budget.to_string(), "7/1day");
}

#[test]
fn what_a_server_says_on_stderr_is_for_the_log_alone_where_the_public_may_come_in() {
    let stderr = |listen: &str, server: &str| read(&format!("{listen}\n{SERVER}{server}\n")).servers[0].stderr;
    assert_eq!(stderr("", ""), StderrFor::Local);
    assert_eq!(stderr("", "\nstderr = \"log\""), StderrFor::Log);
    for public in ["public_url = \"https://mcp.example.com\"", "allowed_hosts = [\"mcp.example.com\"]"] {
        let listen = format!("[listen]\n{public}");
        assert_eq!(stderr(&listen, ""), StderrFor::Log, "{public}");
        assert_eq!(stderr(&listen, "\nstderr = \"local\""), StderrFor::Local, "{public}");
    }
    assert_eq!(stderr("[listen]\nstdio = true\npublic_url = \"https://h.example\"", ""), StderrFor::Local);
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_a_fault_and_any_other_is_noted() {
    for (name, guess) in [
        ("RAINCHECK_DEFAULT_AFTER", "; did you mean RAINCHECK_DEFAULTS_AFTER?"),
        ("RAINCHEK_DEFAULTS_AFTER", ""),
        ("RAINCHECK_LISTEN", "; did you mean RAINCHECK_LISTEN_"),
    ] {
        let found = parse(SERVER, &Environment::of([(name, "1s")]));
        match found {
            Err(ConfigFaults(found)) => {
                assert!(found.len() == 1 && found[0].path == name && found[0].message.contains(guess), "{found:?}");
            }
            Ok(config) => assert!(guess.is_empty() && config.notes.is_empty(), "{name}: {:?}", config.notes),
        }
    }
    let environment = Environment::of([
        ("RAINCHECK_AFTER", "1s"),
        ("RAINCHECK_HANDLES", "x"),
        ("RAINCHECK_PORT_80_TCP", "x"),
        ("RAINCHECK_TOKEN_OF_MINE", "x"),
    ]);
    let notes: Vec<_> = parse(SERVER, &environment).unwrap().notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "RAINCHECK_AFTER: no setting has this variable; did you mean RAINCHECK_DEFAULTS_AFTER?",
            "RAINCHECK_TOKEN_OF_MINE: no setting has this variable",
        ]
    );
}

#[test]
fn an_argument_may_be_empty_and_the_program_may_not() {
    let server = |command: &str| read(&format!("[[server]]\nname = \"x\"\ncommand = {command}\n"));
    let Transport::Stdio { command, .. } = &server("[\"x\", \"\"]").servers[0].transport else { panic!() };
    assert_eq!(command, &["x", ""]);
}

#[test]
fn levels_are_read_in_any_case_and_with_spaces() {
    for (text, level) in [("WARN", "WARN"), ("warn, raincheck=debug", "warn,raincheck=debug"), ("off", "off")] {
        assert_eq!(read(&format!("[log]\nlevel = \"{text}\"\n{SERVER}")).log.level, level);
    }
}
