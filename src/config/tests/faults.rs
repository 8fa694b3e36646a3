//! Texts with faults.

/// The text before `SERVER`, and each fault as path and a part of its message.
pub(super) const BAD: &[(&str, &[(&str, &str)])] = &[
    ("lisen = 1", &[("lisen", "did you mean \"listen\"?")]),
    ("listen = 1", &[("listen", "expected a table [listen], found a whole number")]),
    ("[listen]\nhttp = \"localhost:80\"", &[("listen.http", "write \"127.0.0.1:80\"")]),
    ("[listen]\nhttp = \"127.0.0.1\"", &[("listen.http", "the port is missing")]),
    ("[listen]\nhttp = 8080", &[("listen.http", "found a whole number")]),
    ("[listen]\nprot = 8080", &[("listen.prot", "unknown key; did you mean \"http\"?")]),
    ("[listen]\naddress = \"a\"", &[("listen.address", "unknown key; did you mean \"http\"?")]),
    ("[store]\nptah = \"a\"", &[("store.ptah", "unknown key; did you mean \"path\"?")]),
    (
        "[[server]]\nname = \"b\"\nurl = \"http://h/mcp\"\nprogram = \"a\"",
        &[("server[0].program", "did you mean \"command\"?")],
    ),
    ("[listen]\nhtpp = \"127.0.0.1:1\"", &[("listen.htpp", "unknown key; did you mean \"http\"?")]),
    ("[listen]\nstdio = true\nhttp = \"127.0.0.1:1\"", &[("listen.stdio", "take one of them out")]),
    ("[admin]\nhttp = \"127.0.0.1:8080\"", &[("admin.http", "is the address of listen.http")]),
    ("[admin]\nhttp = \"0.0.0.0:1\"", &[("admin.http", "whoever comes could stop every task")]),
    ("[admin]\ntoken = \"x\"", &[("admin.http", "is missing")]),
    ("[admin]\nhttp = \"127.0.0.1:1\"\ntoken = \"a b\"", &[("admin.token", "printable ASCII")]),
    (
        "[admin]\nhttp = \"127.0.0.1:1\"\ntoken = \"a\"\nsha256 = \"00\"",
        &[("admin.sha256", "64 hex digits"), ("admin.sha256", "exactly one")],
    ),
    ("[admin]\nhttp = \"0.0.0.0:1\"\ntoken_env = \"NO_SUCH\"", &[("admin.token_env", "is not set")]),
    ("[listen]\npublic_url = \"ftp://h/\"", &[("listen.public_url", "must be http or https")]),
    (
        "[listen]\nallowed_hosts = [\"a.example\", \"b:80\", \"http://c\"]",
        &[("listen.allowed_hosts[1]", "leave out the port"), ("listen.allowed_hosts[2]", "leave out the scheme")],
    ),
    (
        "[listen]\nallowed_origins = [\"*\", \"https://a/b\"]",
        &[("listen.allowed_origins[0]", "list the ones that you trust"), ("listen.allowed_origins[1]", "an origin")],
    ),
    ("[listen]\nkeep_alive = 15", &[("listen.keep_alive", "write \"15s\"")]),
    ("[listen]\nsession_idle = 3600", &[("listen.session_idle", "write \"3600s\"")]),
    ("[limits]\nsessions = 0", &[("limits.sessions", "above 0")]),
    ("[[server]]\nname = \"x\"\ncommand = [\"\", \"y\"]", &[("server[0].command", "the program first")]),
    ("[store]\npath = \"\"", &[("store.path", "must not be empty")]),
    (
        "[store]\ndurability = \"disk\"\ncache = \"lots\"\nmax_tasks = 0",
        &[
            ("store.durability", "\"power\", \"process\""),
            ("store.cache", "such as \"8MiB\""),
            ("store.max_tasks", "above 0"),
        ],
    ),
    (
        "[limits]\nbody = \"0MiB\"\ndepth = 1000\ncalls = -1\nread_timeout = \"0s\"",
        &[
            ("limits.body", "a size"),
            ("limits.depth", "128 at most"),
            ("limits.calls", "above 0"),
            ("limits.read_timeout", "longer than zero"),
        ],
    ),
    ("[log]\nlevel = \"inof\"", &[("log.level", "did you mean \"info\"?")]),
    ("[log]\nlevel = \"warn, raincheck:debug\"", &[("log.level", "did you mean \"raincheck=debug\"?")]),
    ("[log]\nlevel = \" , \"", &[("log.level", "such as \"info\"")]),
    ("[defaults]\nmode = \"async\"", &[("defaults.mode", "did you mean \"task\"?")]),
    ("[listen]\nafter = \"1s\"", &[("listen.after", "unknown key here; it belongs to [defaults]")]),
    (
        "[[server]]\nname = \"b\"\nurl = \"http://h/mcp\"\nafter = \"3s\"\nmax_running = 1\nbudget = \"1/1d\"\nrate = \"1/1m\"",
        &[
            ("server[0].after", "unknown key here; it belongs to [defaults] or [[tool]]"),
            (
                "server[0].max_running",
                "it belongs to [defaults], [[owner.limit]], [owner.limits] or [[tool]]; how many sessions or processes",
            ),
            ("server[0].budget", "it belongs to [[owner.limit]] or [owner.limits]"),
            ("server[0].rate", "it belongs to [defaults], [limits], [[owner.limit]], [owner.limits] or [[tool]]"),
        ],
    ),
    (
        "[defaults]\nbudget = \"1/1d\"\n[[tool]]\nname = \"foo\"\nmatch = \"x\"\ngrace = \"5s\"",
        &[
            ("defaults.budget", "it belongs to [[owner.limit]] or [owner.limits]"),
            ("tool[0].name", "unknown key; did you mean \"match\"?"),
            ("tool[0].grace", "it belongs to [shutdown]"),
        ],
    ),
    (
        "[admin]\nhttp = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\npassword = \"x\"",
        &[
            ("admin.listen", "[admin] has http, sha256, token, token_env and token_file"),
            ("admin.password", "[admin] has http, sha256, token, token_env and token_file"),
        ],
    ),
    (
        "[[server]]\nname = \"jobs\"\nurl = \"http://h/mcp\"\n[[server.tool]]\nmatch = \"x\"",
        &[("server[0].tool", "unknown table here; rules stand beside the servers: [[tool]] with server = \"jobs\"")],
    ),
    (
        "[[server]]\nname = \"jobs\"\nurl = \"http://h/mcp\"\n[server.tool]\nmatch = \"x\"\n[[server.tool]]\nmatch = \"y\"",
        &[("syntax", "there is no [server.tool]; a rule is [[tool]], beside the servers, with server = ")],
    ),
    ("[tool]\nmatch = \"a\"\n[[tool]]\nmatch = \"b\"", &[("syntax", "an earlier line has [tool]; there may be")]),
    ("[admin]\ntoken = \"a\"\ntoken = \"b\"", &[("syntax", "duplicate key \"token\": it is in this file already")]),
    ("[jwt]\nissuer = \"a\"", &[("jwt", "unknown table here; it is [owner.jwt]")]),
    ("[listen.admin]\nhttp = \"a\"", &[("listen.admin", "unknown table here; it is [admin]")]),
    ("[metrics]\non = true", &[("metrics", "unknown table; there are [admin], ")]),
    ("after = \"1s\"", &[("after", "unknown key here; it belongs to [defaults]")]),
    ("command = [\"x\"]", &[("command", "unknown key here; it belongs to [[server]]")]),
    ("[log]\nvolume = 11", &[("log.volume", "unknown key; [log] has format and level")]),
    (
        "[[owner.token]]\nname = \"a\"\ntoken = \"b\"\nuser = 1",
        &[("owner.token[0].user", "[[owner.token]] has name, ")],
    ),
    ("[servers.a]\nurl = \"http://h/mcp\"", &[("servers", "did you mean \"server\"?")]),
    ("[server]\nurl = \"http://h/mcp\"", &[("syntax", "[[server]], in double brackets")]),
    ("[listen]\nhttp = 127.0.0.1:8080", &[("syntax", "a text stands in quotes: http = \"...\"")]),
    ("[defaults]\nmode = auto", &[("syntax", "a text stands in quotes: mode = \"...\"")]),
    ("[defaults]\nmode =", &[("syntax", "the value of mode is missing")]),
    ("[defaults]\nmode: \"auto\"", &[("syntax", "between a key and its value stands =, no colon: mode = ...")]),
    ("[log]\n[store]\n[log]", &[("syntax", "duplicate key \"log\": it is in this file already; make them one")]),
    ("[log]\nlevel = \"info\"\nlevel = \"warn\"", &[("syntax", "duplicate key \"level\"")]),
    ("{ \"listen\": {} }", &[("syntax", "this looks like JSON; a configuration is TOML")]),
    ("listen:\n  http: 127.0.0.1:1", &[("syntax", "this looks like YAML; a configuration is TOML")]),
    (
        "[[owner.token]]\nname = \"a\"\nsha256 = \"00\"\n[[owner.limit]]\nname = \"a\"\nmax_tasks = 1",
        &[("owner.token[0].sha256", "64 hex digits")],
    ),
    (
        "[log]\nformat = \"jsn\"\nlevel = \"a=b=c\"",
        &[("log.format", "did you mean \"json\"?"), ("log.level", "such as \"info\"")],
    ),
    ("[shutdown]\ngrace = \"5 parsecs\"", &[("shutdown.grace", "a duration")]),
    (
        "[limits]\nbody = \"1\"\nmessage = 5\nline = \"1023\"",
        &[("limits.body", "1 KiB at least"), ("limits.message", "1 KiB at least"), ("limits.line", "1 KiB at least")],
    ),
    (
        "[owner.jwt]\nissuer = \"i\"\naudience = [\"a\"]\njwks = \"/no/such/keys.json\"",
        &[("owner.jwt.jwks", "cannot read /no/such/keys.json: No such file")],
    ),
    ("[owner.jwt]\nissuer = \"i\"\naudience = [\"a\"]\njwks = \"/dev\"", &[("owner.jwt.jwks", "cannot read /dev: ")]),
    (
        "[owner.limits]\ntimeout = \"10s\"",
        &[("owner.limits.timeout", "(10s) must be longer than after of [defaults] (10s), or no call")],
    ),
    (
        "[owner.limits]\ntimeout = \"1m\"\n[[tool]]\nmatch = \"slow_*\"\nafter = \"2m\"",
        &[("owner.limits.timeout", "(1m) must be longer than after of the tool \"slow_*\" (2m)")],
    ),
    (
        "[owner.limits]\ntimeout = \"1m\"\n[[owner.token]]\nname = \"a\"\ntoken = \"b\"\n[[owner.limit]]\nname = \"a\"\ntimeout = \"5s\"",
        &[("owner.limit[0].timeout", "no call would ever become a task of theirs")],
    ),
    (
        "[defaults]\nmode = \"async\"\nfallback = \"handel\"\nask = \"second\"\nask_timeout = 5\non_lost = \"retry\"\ndedupe = \"no\"\nrate = \"0/m\"\nprice = \"1.0000001\"",
        &[
            ("defaults.mode", "\"sync\", \"auto\", \"task\""),
            ("defaults.fallback", "did you mean \"handle\"?"),
            ("defaults.ask", "\"task\", \"first\""),
            ("defaults.ask_timeout", "a duration"),
            ("defaults.on_lost", "\"unknown\", \"rerun\""),
            ("defaults.dedupe", "\"10m\" is a window"),
            ("defaults.rate", "\"30/1m\""),
            ("defaults.price", "six decimals"),
        ],
    ),
    (
        "[listen]\nhttp = \"0.0.0.0:80\"\n[[owner.token]]\nname = \"a\"\ntoken = \"a b\"",
        &[("owner.token[0].token", "without spaces")],
    ),
    (
        "[listen]\nhttp = \"0.0.0.0:80\"\n[[owner.token]]\nname = \"a\"\ntoken_env = \"NO\"",
        &[("owner.token[0].token_env", "is not set")],
    ),
    ("[defaults]\nafter = \"soon\"", &[("defaults.after", "such as \"10s\", \"30m\" or \"1h 30m\", found \"soon\"")]),
    ("[[server]]\nname = \"b\"\nurl = \"127.0.0.1:3000/mcp\"", &[("server[0].url", "http:// or https:// is missing")]),
    ("[[server]]\nname = \"b\"\nurl = \"localhost:3000/mcp\"", &[("server[0].url", "http:// or https:// is missing")]),
    (
        "[defaults]\nafter = \"1h\"",
        &[("defaults.after", "after (1h) must be shorter than timeout (30m, which is not set here)")],
    ),
    (
        "[defaults]\ntimeout = \"5s\"",
        &[("defaults.timeout", "after (10s, which is not set here) must be shorter than timeout (5s),")],
    ),
    ("[owner]\nfrom = \"header\"", &[("owner.from", "\"header:NAME\"")]),
    ("[owner]\nfrom = \"header:x-user\"", &[("owner.trusted", "from any other address it could be forged")]),
    ("[owner]\nfrom = \"header:x-user\"\ntrusted = [\"0.0.0.0/0\"]", &[("owner.trusted", "forge")]),
    (
        "[owner]\nfrom = \"header:x-user\"\ntrusted = [\"10.0.0.0/33\", \"h\"]",
        &[("owner.trusted[0]", "a block"), ("owner.trusted[1]", "a block"), ("owner.trusted", "forged")],
    ),
    (
        "[owner.limits]\nbudget = \"100\"\nrate = \"x\"\nmax_running = 0\nmax_quued = 1",
        &[
            ("owner.limits.budget", "such as \"100/1d\""),
            ("owner.limits.rate", "30/1m"),
            ("owner.limits.max_running", "above 0"),
            ("owner.limits.max_quued", "did you mean \"max_queued\"?"),
        ],
    ),
    (
        "[[owner.token]]\nname = \"a\"\ntoken = \"t\"\n\
         [[owner.limit]]\nmax_running = 1\n[[owner.limit]]\nname = \"a\"\n[[owner.limit]]\nname = \"a\"\nbudget = 5",
        &[
            ("owner.limit[0].name", "is missing"),
            ("owner.limit[2].name", "same name"),
            ("owner.limit[2].budget", "an amount and a period"),
        ],
    ),
    (
        "[[owner.token]]\nname = \"ann\"\ntoken = \"t\"\n[[owner.limit]]\nname = \"an\"",
        &[("owner.limit[0].name", "no [[owner.token]] has this name; there are \"ann\"")],
    ),
    ("[[owner.limit]]\nname = \"ann\"", &[("owner.limit[0].name", "no caller has a name")]),
    ("[owner]\ntrusted = [\"10.0.0.1\"]", &[("owner.trusted", "only means something with from")]),
    (
        "[[owner.token]]\nname = \"a\"\ntoken = \"Bearer x\"\n[[owner.token]]\ntoken = \"t\"\ntoken_env = \"E\"",
        &[
            ("owner.token[0].token", "leave out the word Bearer"),
            ("owner.token[1].name", "is missing"),
            ("owner.token[1].token", "exactly one of token, token_env, token_file and sha256"),
        ],
    ),
    (
        "[[owner.token]]\nname = \"a\"\ntoken_env = \"NOT_SET\"\n[[owner.token]]\nname = \"b\"\ntoken_file = \"/no/such\"",
        &[
            ("owner.token[0].token_env", "the variable NOT_SET is not set"),
            ("owner.token[1].token_file", "cannot read /no/such"),
        ],
    ),
    ("[[server]]\nname = \"s\"\nurl = \"http://h/mcp\"", &[("server[1].name", "another server is called \"s\"")]),
    (
        "[[server]]\nname = \"Upper\"\ncommand = []\nurl = \"http://u:p@h/\"",
        &[
            ("server[0].name", "lower-case"),
            ("server[0].url", "must hold no credentials"),
            ("server[0].url", "both are set"),
            ("server[0].command", "must not be empty"),
        ],
    ),
    (
        "[[server]]\nname = \"a\"\nurl = \"ftp://h/\"\nforward = [\"host\"]",
        &[
            ("server[0].url", "the scheme must be http or https"),
            ("server[0].forward", "Raincheck sets this header itself"),
        ],
    ),
    (
        "[[server]]\nname = \"a\"\ncommand = [\"a b\"]\nurl = \"http://h/\"\nforward = [\"host\"]",
        &[
            ("server[0].url", "both are set"),
            ("server[0].command", "each argument as a string of its own"),
            ("server[0].forward", "Raincheck sets this header itself"),
        ],
    ),
    (
        "[[server]]\nname = \"a\"\nforward = [\"host\"]",
        &[("server[0].url", "neither is set"), ("server[0].forward", "Raincheck sets this header itself")],
    ),
    ("[[server]]\nname = \"a\"", &[("server[0].url", "neither is set")]),
    (
        "[[server]]\nname = \"a\"\nurl = \"http://h/\"\ncompanion_tools = { check = \"my job\", answer = \"cancel_job\", ask = \"x\" }",
        &[
            ("server[0].companion_tools.check", "letters, digits"),
            ("server[0].companion_tools.ask", "it has check, cancel and answer"),
            ("server[0].companion_tools", "a name of its own"),
        ],
    ),
    (
        "[defaults]\nfallback = \"handle\"\ntimeout = \"20s\"\nhold = \"20s\"",
        &[("defaults.hold", "must be shorter than timeout")],
    ),
    (
        "[[server]]\nname = \"a\"\ncommand = \"npx x\"",
        &[("server[0].command", "expected a list, such as [\"npx\", \"-y\", \"some-server\"], found a string")],
    ),
    ("[listen]\nallowed_hosts = \"h\"", &[("listen.allowed_hosts", "expected a list, such as [\"...\"]")]),
    ("[[server]]\nname = \"a\"\ncommand = [\"npx x\"]", &[("server[0].command", "no shell reads it")]),
    (
        "[[server]]\nname = \"a\"\ncommand = [\"x\"]\nforward = [\"a\"]\nheaders = { b = \"c\" }\nserial = 1\nsessions = \"many\"\noffer = [\"roots\", \"tea\"]\nhealth = true",
        &[
            ("server[0].forward", "only means something beside url"),
            ("server[0].headers", "only means something beside url"),
            ("server[0].serial", "expected true or false"),
            ("server[0].sessions", "\"auto\", \"one\", \"pool\""),
            ("server[0].offer[1]", "\"elicitation\", \"sampling\", \"roots\""),
            ("server[0].health", "not in this version yet"),
        ],
    ),
    (
        "[[server]]\nname = \"a\"\ncommand = [\"x\"]\ntransport = \"sse\"\n[[server]]\nname = \"b\"\nurl = \"http://h/\"\ntransport = \"ws\"",
        &[("server[0].transport", "only means something beside url"), ("server[1].transport", "\"http\", \"sse\"")],
    ),
    (
        "[[server]]\nname = \"a\"\nurl = \"http://h/\"\ncwd = \"/\"\nera = \"old\"\ncancel = \"no\"\nmax_sessions = 1.5",
        &[
            ("server[0].cwd", "only means something beside command"),
            ("server[0].era", "\"legacy\", \"modern\", \"auto\""),
            ("server[0].cancel", "\"forward\", \"never\", \"ignored\""),
            ("server[0].max_sessions", "found a decimal number"),
        ],
    ),
    (
        "[[server]]\nname = \"a\"\nurl = \"http://h/\"\nheaders = { host = \"x\", k = 1 }\nforward = [\"k\", \"mcp-name\"]\nheaders_env = { k = \"NONE\" }",
        &[
            ("server[0].headers.host", "Raincheck sets this header itself"),
            ("server[0].headers.k", "expected a string"),
            ("server[0].headers_env.k", "NONE is not set"),
            ("server[0].forward", "mcp-name: Raincheck sets"),
        ],
    ),
    (
        "[[tool]]\nmode = \"task\"\n[[tool]]\nmatch = \"a\"\nserver = \"z\"\n[[tool]]\nmatch = \"a\"\nserver = \"z\"",
        &[
            ("tool[0].match", "is missing"),
            ("tool[1].server", "there is no [[server]] with the name \"z\"; did you mean \"s\"?"),
            ("tool[2].server", "there is no [[server]]"),
            ("tool[2].match", "make them one"),
        ],
    ),
    (
        "[[tool]]\nmatch = \"a\"\nafter = \"3h\"\nkeep = \"ever\"\nbudget = 1\nmax_runing = 1",
        &[
            ("tool[0].after", "must be shorter than timeout"),
            ("tool[0].keep", "a duration"),
            ("tool[0].budget", "unknown key here; it belongs to [[owner.limit]] or [owner.limits]"),
            ("tool[0].max_runing", "did you mean \"max_running\"?"),
        ],
    ),
    (
        "[listen]\nhttp = \"0.0.0.0:8098\"\n[owner]\nallow_anonymous = true\n[admin]\nhttp = \"127.0.0.1:8098\"",
        &[("admin.http", "takes this port on every address")],
    ),
    (
        "[listen]\nhttp = \"127.0.0.1:8098\"\n[admin]\nhttp = \"[::]:8098\"\ntoken = \"t\"",
        &[("admin.http", "takes this port on every address, that of listen.http (127.0.0.1:8098) too")],
    ),
    (
        "[[owner.token]]\nname = \"ann\"\ntoken = \"a b\"\n[[owner.limit]]\nname = \"an\"",
        &[("owner.token[0].token", "without spaces"), ("owner.limit[0].name", "no [[owner.token]] has this name")],
    ),
    (
        "[defaults]\nafter = \"2h\"\n[[tool]]\nmatch = \"a\"\n[[tool]]\nmatch = \"b\"\nkeep = \"1h\"\n[[tool]]\nmatch = \"c\"\nmode = \"auto\"",
        &[("defaults.after", "must be shorter than timeout"), ("tool[2].after", "must be shorter than timeout")],
    ),
    ("[[tool]]\nmatch = \"a**\"", &[("tool[0].match", "write it once")]),
    ("a = \nb = 2\nc = [", &[("syntax", "the value of a"), ("syntax", "the list of c has no end: a ] is missing")]),
    (
        "[log]\nlevel = \"[#\" # [\n[listen]\nallowed_hosts = [\"]#\",\n  '[\\',\n[limits]\ncalls = 3\n",
        &[("syntax", "the list of allowed_hosts has no end: a ] is missing")],
    ),
    ("a = [\n  [\"x\", \"y\"\n]\nb = \"c\"\n", &[("syntax", "the list of a has no end")]),
    (
        "a = [\n  \"x\",\n  \"y,\n]\nb = \"c\"\nd = [",
        &[("syntax", "a text that begins in this line has no end: a \" is")],
    ),
    ("[defaults]\nx = { a = \"}\", b = 1\nafter = \"1s\"\n", &[("syntax", "the inline table of x has no end: a } is")]),
    ("a = \"\"\"[\n\\\"\"\"\"\nb = [\n  # no ]\n", &[("syntax", "the list of b has no end")]),
    ("[listen]\nhttp = \"0.0.0.0:80\"", &[("listen.http", "owner.allow_anonymous = true")]),
];
