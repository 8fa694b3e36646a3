//! `rmcp-client TARGET JOBS tasks|legacy`: rmcp calls tools one after the other and prints one JSON line for each.
//! TARGET is a URL, or a command as a JSON list. `tasks` is the Discover lifecycle with the tasks extension, whose tasks
//! are driven here by hand, as rmcp wants it; `legacy` is what rmcp does by default: `initialize`.
#![expect(deprecated, reason = "sampling is deprecated in 2026-07-28, and legacy servers still ask for it")]
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, GetTaskParams, Implementation, InputRequests,
    InputResponses, ProtocolVersion, TASKS_EXTENSION_ID, TaskPayload, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceError};
use serde_json::{Map, Value, json};

const LIMIT: Duration = Duration::from_secs(60);

type Failure = Box<dyn Error>;

/// Answers every question, and notes which there were.
#[derive(Clone)]
struct Host {
    config: ClientConfig,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Host {
    fn new(tasks: bool) -> Result<Self, serde_json::Error> {
        let mut capabilities: ClientCapabilities = serde_json::from_value(json!({"elicitation": {}, "sampling": {}}))?;
        if tasks {
            capabilities.extensions.get_or_insert_default().insert(TASKS_EXTENSION_ID.into(), Default::default());
        }
        let config = ClientConfig::new(capabilities, Implementation::new("raincheck-interop-rmcp", "0"));
        Ok(Self { config, asked: Arc::default() })
    }

    fn note(&self, question: &'static str) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(question);
    }

    fn take_asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answers(&self, questions: InputRequests) -> Result<InputResponses, serde_json::Error> {
        questions.into_iter().map(|(key, question)| Ok((key, self.answer(&serde_json::to_value(question)?)))).collect()
    }

    /// The answer to a question as it stands on the wire.
    fn answer(&self, question: &Value) -> Value {
        if question["method"] == "elicitation/create" {
            self.note("elicitation");
            json!({"action": "accept", "content": fill(&question["params"]["requestedSchema"])})
        } else {
            self.note("sampling");
            json!({"role": "assistant", "model": "none", "stopReason": "endTurn", "content": {"type": "text", "text": "Rain is likely"}})
        }
    }
}

impl ClientHandler for Host {
    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        typed(self.answer(&json!({"method": "sampling/createMessage"})))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        typed(self.answer(&json!({"method": "elicitation/create", "params": request})))
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [target, jobs, mode] = words.as_slice() else {
        return Err("usage: rmcp-client TARGET JOBS tasks|legacy".into());
    };
    let jobs: Vec<Value> = serde_json::from_str(jobs)?;
    let host = Host::new(mode == "tasks")?;
    let client = connect(target, host.clone(), mode == "tasks").await?;
    for job in jobs {
        let began = Instant::now();
        let mut line = match tokio::time::timeout(LIMIT, drive(&client, &host, &job)).await? {
            Ok(line) => line,
            Err(error) => json!({"error": told(error.as_ref())}),
        };
        line["job"] = job["name"].clone();
        line["asked"] = json!(host.take_asked());
        line["ms"] = json!(began.elapsed().as_millis() as u64);
        println!("{line}");
    }
    client.cancel().await?;
    Ok(())
}

async fn connect(target: &str, host: Host, modern: bool) -> Result<RunningService<RoleClient, Host>, Failure> {
    let lifecycle = if modern {
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
    } else {
        ClientLifecycleMode::Initialize
    };
    if !target.starts_with('[') {
        return Ok(host.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(target), lifecycle).await?);
    }
    let words: Vec<String> = serde_json::from_str(target)?;
    let (file, arguments) = words.split_first().ok_or("an empty command")?;
    let mut command = tokio::process::Command::new(file);
    command.args(arguments);
    Ok(host.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
}

async fn drive(client: &RunningService<RoleClient, Host>, host: &Host, job: &Value) -> Result<Value, Failure> {
    let tool = job["tool"].as_str().ok_or("a job without a tool")?.to_owned();
    let mut params = CallToolRequestParams::new(tool).with_arguments(serde_json::from_value(job["arguments"].clone())?);
    loop {
        match client.peer().call_tool_once(params.clone()).await? {
            CallToolResponse::Complete(result) => return Ok(said(&serde_json::to_value(result)?)),
            CallToolResponse::Task(created) => {
                let poll = created.task.poll_interval_ms;
                return follow(client, host, created.task.task_id, poll).await;
            }
            CallToolResponse::InputRequired(round) => {
                params.input_responses = Some(host.answers(round.input_requests.unwrap_or_default())?);
                params.request_state = round.request_state;
            }
            other => return Err(format!("neither a result nor a task: {other:?}").into()),
        }
    }
}

async fn follow(
    client: &RunningService<RoleClient, Host>,
    host: &Host,
    id: String,
    mut poll: Option<u64>,
) -> Result<Value, Failure> {
    let mut statuses: Vec<Value> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(poll.unwrap_or(200))).await;
        let now = client.peer().get_task(GetTaskParams::new(id.clone())).await?.task;
        poll = now.task.poll_interval_ms.or(poll);
        let status = json!(now.task.status);
        if statuses.last() != Some(&status) {
            statuses.push(status);
        }
        let mut line = match now.payload {
            TaskPayload::Working => continue,
            TaskPayload::InputRequired { input_requests } => {
                let answers = host.answers(input_requests)?;
                client.peer().update_task(UpdateTaskParams::new(id.clone(), answers)).await?;
                continue;
            }
            TaskPayload::Completed { result } => said(&Value::Object(result)),
            TaskPayload::Failed { error } => json!({"error": error}),
            other => return Err(format!("task {id} ended as {other:?}").into()),
        };
        line["taskId"] = json!(id);
        line["statuses"] = json!(statuses);
        return Ok(line);
    }
}

fn said(result: &Value) -> Value {
    let texts = result["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    json!({"text": texts.collect::<Vec<_>>().join(" "), "isError": result["isError"].as_bool().unwrap_or(false)})
}

fn told(error: &(dyn Error + 'static)) -> Value {
    match error.downcast_ref::<ServiceError>() {
        Some(ServiceError::McpError(facts)) => json!({"code": facts.code, "message": facts.message}),
        _ => json!({"message": error.to_string()}),
    }
}

/// Fills in a form: each property that it must have.
fn fill(schema: &Value) -> Value {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |rule: &Value| match (rule.get("default"), rule["type"].as_str()) {
        (Some(value), _) => value.clone(),
        (None, Some("boolean")) => json!(true),
        (None, Some("integer" | "number")) => rule.get("minimum").cloned().unwrap_or(json!(1)),
        (None, Some("array")) => json!([]),
        (None, _) => rule["enum"].get(0).cloned().unwrap_or(json!("Ann")),
    };
    Value::Object(names.map(|name| (name.to_owned(), value(&schema["properties"][name]))).collect::<Map<_, _>>())
}

fn typed<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, ErrorData> {
    serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
