//! What is odd without being wrong.

use super::{SERVER, read};

#[test]
fn what_means_nothing_is_noted_with_its_line() {
    let notes = |text: &str| -> Vec<String> { read(text).notes.iter().map(ToString::to_string).collect() };
    let tool = "[[tool]]\nmatch = \"x\"\n";
    let token = "[[owner.token]]\nname = \"ann\"\ntoken = \"t\"\n[[owner.limit]]\nname = ";
    for (text, says) in [
        (
            format!("{tool}mode = \"sync\"\nafter = \"1s\"\n"),
            "tool[0].after (line 4): means nothing beside mode = \"sync\"",
        ),
        (format!("{tool}mode = \"task\"\nafter = \"1s\"\n"), "beside mode = \"task\""),
        (
            format!("{tool}timeout = \"1m\"\nidle_timeout = \"1m\"\n"),
            "tool[0].idle_timeout (line 4): idle_timeout is not shorter",
        ),
        (
            format!("[defaults]\nidle_timeout = \"20m\"\n{tool}timeout = \"11m\"\n"),
            "tool[0].timeout (line 5): idle_timeout",
        ),
        (
            format!("{tool}hold = \"5s\"\n"),
            "tool[0].hold (line 3): means nothing beside fallback = \"wait\"; it is for fallback = \"handle\"",
        ),
        ("[defaults]\nhold = \"5s\"\n".to_owned(), "defaults.hold (line 2): means nothing"),
        (format!("[defaults]\nmode = \"sync\"\nafter = \"5s\"\n{tool}"), "defaults.after (line 3): means nothing"),
        (
            "[owner.limits]\nbudget = \"1/1d\"\n".to_owned(),
            "owner.limits.budget (line 2): nothing is spent, since no tool has a price or a price_per_minute",
        ),
        (format!("{token}\"ann\"\nbudget = \"1/1d\"\n"), "owner.limit[0].budget (line 6): nothing is spent"),
        (format!("{tool}price = 0.5\n"), "tool[0].price (line 3): limits nothing without a budget in [owner.limits]"),
        ("[defaults]\nprice_per_minute = 1\n".to_owned(), "defaults.price_per_minute (line 2): limits nothing"),
        (
            format!("{tool}mode = \"sync\"\nask = \"first\"\n"),
            "tool[0].ask (line 4): means nothing beside mode = \"sync\"",
        ),
        (
            "[[server]]\nname = \"c\"\nurl = \"http://h/mcp\"\ncompanion_tools = { check = \"look\" }\n".to_owned(),
            "server[0].companion_tools (line 4): means nothing, since no tool of it has fallback = \"handle\"",
        ),
        (
            format!("[owner.limits]\nbudget = \"5/1d\"\n{tool}price = 5.5\n"),
            "tool[0].price (line 5): is more than the whole budget of an owner (5/1day): such a call is refused for ever",
        ),
        (
            "[listen]\nhttp = \"0.0.0.0:8090\"\n[owner]\nallow_anonymous = true\n[[server]]\nname = \"c\"\n\
             url = \"http://localhost:8090/c/mcp/\"\n"
                .to_owned(),
            "server[0].url (line 7): leads back to this proxy itself",
        ),
        (
            "[listen]\npublic_url = \"https://x.example/base\"\n[[server]]\nname = \"c\"\n\
             url = \"https://x.example/base/c/mcp\"\n"
                .to_owned(),
            "server[0].url (line 5): leads back to this proxy itself",
        ),
        (
            "[[server]]\nname = \"c\"\nurl = \"http://[::1]:8080/c/mcp\"\n".to_owned(),
            "server[0].url (line 3): leads back to this proxy itself",
        ),
        (
            format!("{token}\"ann\"\nbudget = \"5/1d\"\n[defaults]\nprice = 6\n"),
            "defaults.price (line 8): is more than the whole budget of \"ann\" (5/1day): such a call of theirs",
        ),
    ] {
        let found = notes(&format!("{text}{SERVER}"));
        assert!(found.len() == 1 && found[0].contains(says), "{says} in {found:?}");
    }
    for fine in [
        format!("{tool}mode = \"sync\"\n"),
        format!("[defaults]\nafter = \"1s\"\n{tool}mode = \"task\"\n"),
        format!("{token}\"ann\"\n"),
        "[[server]]\nname = \"c\"\nurl = \"http://127.0.0.1:8081/c/mcp\"\n".to_owned(),
        "[[server]]\nname = \"c\"\nurl = \"http://127.0.0.1:8080/other/mcp\"\n".to_owned(),
        "[[server]]\nname = \"c\"\nurl = \"http://10.0.0.1:8080/c/mcp\"\n".to_owned(),
        format!("[defaults]\nhold = \"5s\"\n{tool}fallback = \"handle\"\n"),
        format!("[defaults]\nmode = \"sync\"\nafter = \"5s\"\n{tool}mode = \"auto\"\n"),
        format!("[owner.limits]\nbudget = \"1/1d\"\n{tool}price = 1\n"),
        format!("[defaults]\nprice_per_minute = 1\n{token}\"ann\"\nbudget = \"1/1d\"\n"),
        format!("[owner.limits]\nbudget = \"5/1d\"\n{tool}price = 5\n"),
        format!("{tool}price = 0\n[owner.limits]\nbudget = \"none\"\n"),
        format!(
            "{tool}fallback = \"handle\"\n[[server]]\nname = \"c\"\nurl = \"http://h/mcp\"\n\
             companion_tools = {{ check = \"look\" }}\n"
        ),
    ] {
        assert_eq!(notes(&format!("{fine}{SERVER}")), [""; 0], "{fine}");
    }
}
