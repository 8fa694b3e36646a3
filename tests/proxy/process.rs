//! The proxy as a process of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::PATIENCE;
use crate::client::Client;
use crate::signs::{self, Said};
use crate::upstream::Upstream;

/// A configuration and a store, for one proxy after the other.
pub(crate) struct Ground {
    folder: TempDir,
    environment: Vec<(&'static str, &'static str)>,
    /// Files that a proxy may have open; as many as it likes if there is none.
    files: Option<u32>,
}

/// A proxy that runs. Killed when it is dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) base: String,
    log: Said,
}

impl Ground {
    /// One server, mounted at `/mcp`. `rest` is everything else of the configuration but `[listen]` and `[store]`.
    pub(crate) fn new(upstream: &Upstream, rest: &str) -> Self {
        Self::with_server(upstream, "", rest)
    }

    /// The same, with more keys of the server.
    pub(crate) fn with_server(upstream: &Upstream, more: &str, rest: &str) -> Self {
        let store = "durability = \"process\"\nmin_free = 1";
        Self::written(&format!("{rest}\n[[server]]\nname = \"behind\"\n{}{more}", upstream.config()), store)
    }

    /// In front of any server: its `[[server]]` table without a name.
    pub(crate) fn before(server: &str, rest: &str) -> Self {
        Self::written(
            &format!("{rest}\n[[server]]\nname = \"behind\"\n{server}"),
            "durability = \"process\"\nmin_free = 1",
        )
    }

    /// The same on this port, behind a balancer that gives it this URL.
    pub(crate) fn public(url: &str, port: u16, server: &str) -> Self {
        let ground = Self::before(server, "");
        let config = std::fs::read_to_string(ground.config()).unwrap();
        let listen = format!("[listen]\npublic_url = {url:?}\nhttp = \"127.0.0.1:{port}\"\n");
        std::fs::write(ground.config(), config.replace("[listen]\nhttp = \"127.0.0.1:0\"\n", &listen)).unwrap();
        ground
    }

    /// In front of the demo server.
    pub(crate) fn demo(rest: &str) -> Self {
        let server = "[[server]]\nname = \"behind\"\ncommand = [\"@self\", \"demo-server\"]";
        Self::written(&format!("{rest}\n{server}"), "durability = \"process\"\nmin_free = 1")
    }

    /// With the store as users have it by default.
    pub(crate) fn durable(upstream: &Upstream, rest: &str) -> Self {
        Self::written(&format!("{rest}\n[[server]]\nname = \"behind\"\n{}", upstream.config()), "min_free = 1")
    }

    fn written(rest: &str, store: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store").display().to_string();
        let text = format!("[listen]\nhttp = \"127.0.0.1:0\"\n[store]\npath = {path:?}\n{store}\n{rest}");
        std::fs::write(folder.path().join("config.toml"), text).unwrap();
        Self { folder, environment: Vec::new(), files: None }
    }

    /// The same, with more keys of `[listen]`.
    pub(crate) fn with_listen(self, more: &str) -> Self {
        let text = std::fs::read_to_string(self.config()).unwrap();
        std::fs::write(self.config(), text.replacen("[listen]\n", &format!("[listen]\n{more}\n"), 1)).unwrap();
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// With so many file descriptors for each proxy.
    pub(crate) fn with_files(self, files: u32) -> Self {
        Self { files: Some(files), ..self }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_raincheck");
        let mut command = match self.files {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\""), program]);
                shell
            }
        };
        command.args(["serve", "--config"]).arg(self.config()).env_remove("RUST_LOG");
        command.envs(self.environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a proxy and waits until clients can come.
    pub(crate) async fn start(&self) -> Proxy {
        let (mut proxy, ready) = self.spawn();
        let base = tokio::time::timeout(PATIENCE, ready).await.expect("the proxy does not start");
        proxy.base = base.unwrap_or_else(|_| panic!("the proxy ended at its start: {}", proxy.log()));
        proxy
    }

    /// Starts a proxy; its address is told when clients can come.
    pub(crate) fn spawn(&self) -> (Proxy, oneshot::Receiver<String>) {
        let mut child = self.command().spawn().unwrap();
        let (said, ready) = oneshot::channel();
        let log = Said::new();
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()), log.clone());
        std::thread::spawn(move || {
            let mut said = Some(said);
            for line in lines.split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).into_owned();
                if let Some(url) = line.strip_prefix("  http://").or(line.strip_prefix("  https://")) {
                    let authority = url.split('/').next().unwrap();
                    if let Some(said) = said.take() {
                        let _ = said.send(format!("http://{authority}"));
                    }
                }
                kept.push(&(line + "\n"));
            }
            kept.close();
        });
        (Proxy { child, base: String::new(), log }, ready)
    }

    /// Runs a proxy that is to end at its start.
    pub(crate) fn fails(&self) -> Output {
        fails(self.command())
    }
}

/// Waits for a program that is to end by itself.
pub(crate) fn fails(mut command: Command) -> Output {
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        let _ = kill(pid, Signal::SIGKILL);
        panic!("it was to end at once");
    };
    output.unwrap()
}

impl Proxy {
    pub(crate) fn client(&self) -> Client {
        Client::new(format!("{}/mcp", self.base))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    /// Everything that it said on stderr.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Resolves when it has said this on stderr.
    pub(crate) async fn says(&self, words: &str) {
        self.log.until(PATIENCE, |log| log.contains(words)).await;
    }

    /// Resolves when it has said so many lines on stderr.
    pub(crate) async fn says_lines(&self, count: usize) {
        self.log.until(PATIENCE, |log| log.lines().count() >= count).await;
    }

    /// Resolves when it says a line that it has not said so far.
    pub(crate) async fn says_anew(&self, wanted: impl Fn(&str) -> bool) {
        let known = self.log().len();
        self.log.until(PATIENCE, |log| log[known..].lines().any(&wanted)).await;
    }

    /// Everything that it said on stderr until its end.
    pub(crate) async fn last_log(&self) -> String {
        self.log.whole(PATIENCE).await
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
    }

    /// Waits for the end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        signs::ended(self.child.id().try_into().unwrap(), PATIENCE).await;
        self.child.wait().unwrap()
    }

    /// SIGTERM, and the exit code.
    pub(crate) async fn stop(mut self) -> Option<i32> {
        self.terminate();
        self.end().await.code()
    }

    /// Open file descriptors.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Memory in bytes: `VmRSS` now, `VmHWM` at most since [`Proxy::forget_peak`].
    pub(crate) fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let start = log.len().saturating_sub(4000);
            eprintln!("the proxy said: {}", String::from_utf8_lossy(&log.as_bytes()[start..]));
        }
    }
}

/// Every file under a folder with its bytes.
pub(crate) fn contents(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                match std::fs::read(&path) {
                    Ok(bytes) => drop(found.insert(path, bytes)),
                    // Some are renamed when they are whole.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", path.display()),
                }
            }
        }
    }
    found
}
