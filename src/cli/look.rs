//! Looks at what a configuration leads to, for whoever sets one up: nothing of this keeps the proxy from starting.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::config::{
    Config, Door, Fallback, Limits, Mode, ServerConfig, StoreOrigin, ToolPolicy, Transport, the_server,
};
use crate::upstream::{self, Callers, Look};

/// How long a server may take to take a connection before that is said.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is odd about a configuration, or about the machine it is for, without being wrong.
pub(super) async fn notes(config: &Config) -> Vec<String> {
    let callers = callers(config.door);
    let looks = config.servers.iter().map(|server| seen(server, &config.limits, callers));
    let looks = futures_util::future::join_all(looks).await;
    let servers = looks.iter().filter_map(|look| match look {
        Look::Odd(why) => Some(why.clone()),
        Look::Fine | Look::Unknown => None,
    });
    let pathless = config.servers.iter().zip(&looks).filter_map(|(server, look)| match &server.transport {
        Transport::Http { url, .. } if url.path() == "/" && *look != Look::Fine => {
            let (name, url) = (the_server(&server.name), shown(url));
            Some(format!("{name}: {url} has no path; most servers are at {url}mcp"))
        }
        Transport::Stdio { .. } | Transport::Http { .. } | Transport::Sse { .. } => None,
    });
    let several = (config.door == Door::Stdio && config.servers.len() > 1).then(|| {
        "listen.stdio: over stdio one process serves one server: raincheck stdio --config FILE --server NAME".to_owned()
    });
    let idle = |policy: &ToolPolicy| policy.fallback == Fallback::Refuse && policy.mode != Mode::Task;
    let says = "fallback = \"refuse\" means something beside mode = \"task\" only";
    // Rules of mode "task" may be what the default is for.
    let is_used = |policy: &ToolPolicy| policy.fallback == Fallback::Refuse && policy.mode == Mode::Task;
    let used = config.tools.iter().any(|rule| is_used(&rule.policy));
    let defaults = (idle(&config.defaults) && !used).then(|| format!("defaults: {says}"));
    let rules = config.tools.iter().filter(|rule| idle(&rule.policy) && config.defaults.fallback != Fallback::Refuse);
    let rules = rules.map(|rule| format!("tool \"{}\": {says}", rule.pattern));
    unmakeable(config)
        .into_iter()
        .chain(never_enough(config))
        .chain(servers)
        .chain(pathless)
        .chain(several)
        .chain(defaults)
        .chain(rules)
        .chain(config.notes.iter().map(ToString::to_string))
        .collect()
}

/// Why the store cannot be made where it is to be, if that can be seen.
fn unmakeable(config: &Config) -> Option<String> {
    if config.door == Door::Stdio && config.store_origin == StoreOrigin::Default {
        return None;
    }
    let path = std::path::absolute(&config.store.path).ok()?;
    // The rest is made at the start.
    let there = path.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    let why = if there.is_dir() {
        match access(there, AccessFlags::W_OK | AccessFlags::X_OK) {
            Err(error) => format!("{} cannot be written: {}", there.display(), std::io::Error::from(error)),
            // So it is with /proc, /sys and their like, which root may write to.
            Ok(()) if statvfs(there).is_ok_and(|disk| disk.blocks() == 0) => {
                format!("no files can be kept in {}", there.display())
            }
            Ok(()) => holds_other_things(there).filter(|_| there == path)?,
        }
    } else {
        format!("{} is no folder", there.display())
    };
    Some(format!("store.path: the store cannot be in {}: {why}", path.display()))
}

/// What is in a folder that is no store, as at the start. Nothing is opened but what says that it is one.
fn holds_other_things(folder: &Path) -> Option<String> {
    if let Ok(marker) = File::open(folder.join("raincheck.store")) {
        let mut text = String::new();
        let is_read = marker.take(256).read_to_string(&mut text).is_ok();
        return (!is_read || !text.starts_with("raincheck-store ")).then(|| "it holds other things".to_owned());
    }
    // What a start leaves that was cut short, and what a mount point has.
    let known = ["lock", "raincheck.store.new", "lost+found"];
    let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    let first = names.filter(|name| !known.iter().any(|known| name == known)).min()?;
    let first = first.to_string_lossy();
    Some(format!("it holds other things ({}); name a folder that is empty or does not exist", first.escape_debug()))
}

/// Says that tasks want more free space than there can be.
fn never_enough(config: &Config) -> Option<String> {
    let least = config.store.min_free_bytes?;
    let path = std::path::absolute(&config.store.path).ok()?;
    let there = path.ancestors().find(|path| path.is_dir())?;
    let disk = statvfs(there).ok()?;
    let whole = disk.blocks().saturating_mul(disk.fragment_size());
    let (wanted, has) = (ByteSize::b(least), ByteSize::b(whole));
    (whole > 0 && least > whole).then(|| {
        format!(
            "store.min_free: no task is ever made: {wanted} is more than the whole disk of {} has ({has})",
            there.display()
        )
    })
}

/// Says in the log which servers cannot be reached as things are. They may come later.
pub(super) async fn at_servers(servers: Vec<ServerConfig>, limits: Limits, door: Door) {
    let looks = servers.iter().map(|server| async {
        if let Look::Odd(why) = seen(server, &limits, callers(door)).await {
            tracing::warn!(server = server.name, "calls will fail for now: {why}");
        }
    });
    futures_util::future::join_all(looks).await;
}

fn callers(door: Door) -> Callers {
    match door {
        Door::Http => Callers::LogIn,
        Door::Stdio => Callers::Nameless,
    }
}

/// Whether a server can be started or reached, and is one of MCP, if that can be seen.
async fn seen(server: &ServerConfig, limits: &Limits, callers: Callers) -> Look {
    let why = match &server.transport {
        Transport::Stdio { command, env, cwd, .. } => unstartable(command, env, cwd.as_deref()),
        Transport::Http { url, .. } | Transport::Sse { url, .. } => unreachable(url).await,
    };
    let look = match why {
        Some(why) => Look::Odd(why),
        None => upstream::look(server, limits, callers).await,
    };
    match look {
        Look::Odd(why) => Look::Odd(format!("{}: {why}", the_server(&server.name))),
        look => look,
    }
}

fn unstartable(command: &[String], env: &BTreeMap<String, String>, cwd: Option<&Path>) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let gone = cwd.filter(|cwd| !cwd.is_dir()).map(|cwd| format!("its cwd {} is no folder", cwd.display()));
    let folder = cwd.unwrap_or(Path::new("."));
    // Nothing can be said of what is looked for in a folder that is not there.
    let is_known = gone.is_none() || !program.contains('/') || program.starts_with('/');
    let program = if is_known { unrunnable(program, env, folder) } else { None }
        .or_else(|| missing_script(program, arguments, folder).filter(|_| gone.is_none()));
    let whys: Vec<String> = gone.into_iter().chain(program).collect();
    (!whys.is_empty()).then(|| whys.join(", and "))
}

/// Why a program cannot be run in `folder`, if that can be seen.
fn unrunnable(program: &str, env: &BTreeMap<String, String>, folder: &Path) -> Option<String> {
    let name = program.escape_debug();
    if program.contains('/') {
        let file = folder.join(program);
        if !file.is_file() {
            return Some(format!("the program \"{name}\" is not found"));
        }
        return (!is_executable(&file))
            .then(|| format!("the program \"{name}\" may not be executed (chmod +x), or name what runs it in front"));
    }
    let path = env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| is_executable(&folder.join(program)));
    (!is_there).then(|| format!("the program \"{name}\" is not found in PATH"))
}

/// A first argument like server.py is a file to be run, where the program runs such.
fn missing_script(program: &str, arguments: &[String], folder: &Path) -> Option<String> {
    let script = arguments.first().filter(|first| is_script(program, first) && !folder.join(first).exists())?;
    if Path::new(script).is_absolute() {
        return Some(format!("the file \"{}\" is not there", script.escape_debug()));
    }
    let from = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    Some(format!(
        "the file \"{}\" is not found in {}; relative paths count from there (cwd)",
        script.escape_debug(),
        from.display()
    ))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Whether the first word behind the flags of this program names what it runs.
pub(super) fn runs_others(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let name = name.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    matches!(
        name,
        "npx" | "bunx" | "pnpx" | "uvx" | "pipx" | "python" | "node" | "bun" | "tsx" | "ruby" | "sh" | "bash"
    )
}

/// Whether `argument` can only be the script that `program` is to run.
fn is_script(program: &str, argument: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let kind = argument.rsplit_once('.').map(|(_, kind)| kind).unwrap_or_default();
    let kinds: &[&str] = match name.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.') {
        "python" => &["py"],
        "node" | "bun" | "tsx" | "ts-node" => &["js", "mjs", "cjs", "ts"],
        "ruby" => &["rb"],
        "sh" | "bash" => &["sh"],
        _ => &[],
    };
    !argument.starts_with('-') && kinds.contains(&kind)
}

async fn unreachable(url: &Url) -> Option<String> {
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let at = shown(url);
    match timeout(PATIENCE, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("there is no connection to {at}: {error}")),
        Err(_) => Some(format!("{at} takes no connection")),
    }
}

/// A URL without credentials and query.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::config::Environment;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raincheck.toml");
        std::fs::write(&path, text).unwrap();
        crate::config::load(&path, &Environment::of([])).unwrap()
    }

    #[tokio::test]
    async fn what_is_odd_is_noted_and_what_is_fine_is_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let fine = format!(
            "[[server]]\nname = \"a\"\ncommand = [\"sh\"]\n[[server]]\nname = \"b\"\nurl = \"http://{at}/mcp?k=secret\"\n\
             [[tool]]\nmatch = \"x\"\nmode = \"task\"\nfallback = \"refuse\"\n"
        );
        assert_eq!(notes(&config(&fine)).await, Vec::<String>::new());
        let odd = format!(
            "[listen]\nstdio = true\n[store]\npath = \"/dev/null/x/store\"\n[defaults]\nfallback = \"refuse\"\n\
             [[server]]\nname = \"a\"\ncommand = [\"no-such-program-here\"]\n\
             [[server]]\nname = \"c\"\ncommand = [\"/no/such/program\"]\n\
             [[server]]\nname = \"b\"\nurl = \"http://{at}?k=secret\"\n\
             [[server]]\nname = \"d\"\nurl = \"http://127.0.0.1:1/mcp?k=secret\"\n\
             [[tool]]\nmatch = \"x\"\nmode = \"sync\"\n"
        );
        let found = notes(&config(&odd)).await;
        let says = [
            "the server \"a\": the program \"no-such-program-here\" is not found in PATH",
            "the server \"c\": the program \"/no/such/program\" is not found",
            &format!("most servers are at http://{at}/mcp"),
            "the server \"d\": there is no connection to http://127.0.0.1:1/mcp: ",
            "--server NAME",
            "defaults: ",
            "store.path: the store cannot be in /dev/null/x/store: /dev/null is no folder",
        ];
        assert_eq!(found.len(), says.len(), "{found:?}");
        for says in says {
            assert!(found.iter().any(|note| note.contains(says)), "{says}: {found:?}");
        }
        assert!(!found.iter().any(|note| note.contains("secret")), "{found:?}");
    }

    #[test]
    fn a_store_that_cannot_be_made_is_seen_for_root_too() {
        let server = "[[server]]\nname = \"a\"\ncommand = [\"sh\"]\n";
        for (path, why) in [("/proc/x", "/proc"), ("/dev/null/x", "/dev/null is no folder")] {
            let found = unmakeable(&config(&format!("[store]\npath = \"{path}\"\n{server}")));
            assert!(found.as_ref().is_some_and(|found| found.contains(why)), "{path}: {found:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert_eq!(unmakeable(&config(&format!("[store]\npath = {path:?}\n{server}"))), None);
        std::fs::create_dir_all(&path).unwrap();
        let text = format!("[store]\npath = {path:?}\n{server}");
        assert_eq!(unmakeable(&config(&text)), None, "an empty folder will do");
        std::fs::write(path.join("thesis.txt"), "").unwrap();
        let found = unmakeable(&config(&text)).unwrap_or_default();
        assert!(found.contains("holds other things") && found.contains("thesis.txt"), "{found}");
        std::fs::write(path.join("raincheck.store"), "raincheck-store 3 closed 1 2\n").unwrap();
        assert_eq!(unmakeable(&config(&text)), None, "a store of ours");
        std::fs::write(path.join("raincheck.store"), "mine\n").unwrap();
        assert!(unmakeable(&config(&text)).is_some());
    }

    #[tokio::test]
    async fn more_free_space_than_the_disk_has_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let text = |min_free: &str| {
            format!("[store]\npath = {path:?}\nmin_free = {min_free:?}\n[[server]]\nname = \"a\"\ncommand = [\"sh\"]\n")
        };
        assert_eq!(notes(&config(&text("1MiB"))).await, Vec::<String>::new());
        let found = notes(&config(&text("4000PiB"))).await;
        assert!(found.len() == 1 && found[0].contains("store.min_free: no task"), "{found:?}");
        assert!(!path.exists());
    }

    #[test]
    fn why_a_program_cannot_be_started_is_seen_in_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), "").unwrap();
        let here = Some(folder.path());
        let table: [(&[&str], Option<&str>); 10] = [
            (&["sh", "-c", "x"], None),
            (&["sh", "run.sh"], Some("the file \"run.sh\" is not found in")),
            (&["/bin/sh", "lib/run.sh"], Some("the file \"lib/run.sh\" is not found in")),
            (&["sh", "/no/such/run.sh"], Some("the file \"/no/such/run.sh\" is not there")),
            (&["sh", "run"], None),
            (&["./server.py"], Some("\"./server.py\" may not be executed (chmod +x)")),
            (&["./none.py"], Some("\"./none.py\" is not found")),
            (&["server.py"], Some("\"server.py\" is not found in PATH")),
            (&["env", "server.js"], None),
            (&[], None),
        ];
        for (command, says) in table {
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            let found = unstartable(&command, &BTreeMap::new(), here);
            let fits = found.as_ref().map_or(says.is_none(), |found| says.is_some_and(|says| found.contains(says)));
            assert!(fits, "{command:?}: {found:?}");
        }
        // A folder that is not there hides nothing that can be seen without it.
        for (command, more) in [
            (&["sh", "run.sh"][..], ""),
            (&["./run.sh"], ""),
            (&["no-such-program-here"], ", and the program \"no-such-program-here\" is not found in PATH"),
            (&["/no/such/program"], ", and the program \"/no/such/program\" is not found"),
        ] {
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            let gone = unstartable(&command, &BTreeMap::new(), Some(Path::new("/no/such/folder")));
            assert_eq!(gone, Some(format!("its cwd /no/such/folder is no folder{more}")));
        }
        for (program, script, is) in [
            ("python3", "a.py", true),
            ("/usr/bin/python3.12", "a.py", true),
            ("node", "dist/index.js", true),
            ("node", "--require=a.js", false),
            ("npx", "a.js", false),
            ("python3", "-m", false),
        ] {
            assert_eq!(is_script(program, script), is, "{program} {script}");
        }
    }

    #[tokio::test]
    async fn a_server_that_takes_no_connection_is_seen() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}/mcp?k=secret", listener.local_addr().unwrap()).parse().unwrap();
        assert_eq!(unreachable(&url).await, None);
        drop(listener);
        let why = unreachable(&url).await.unwrap();
        assert!(why.contains("/mcp:") && !why.contains("secret"), "{why}");
    }

    #[tokio::test]
    async fn a_server_that_is_right_without_a_path_is_not_doubted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = format!("[[server]]\nname = \"a\"\nurl = \"http://{}\"\n", listener.local_addr().unwrap());
        let jobs = crate::jobs::Jobs::new();
        jobs.spawn("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer).await;
            }
        });
        assert_eq!(notes(&config(&text)).await, Vec::<String>::new());
    }
}
