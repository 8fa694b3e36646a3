//! `rmcp-client URL TOOL [ARGUMENTS-JSON]`: rmcp with its Discover lifecycle calls a tool, drives the task
//! that it gets to its end, and prints one JSON line of what it saw. Exit 0 only after a completed task.
use std::error::Error;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, GetTaskParams, Implementation,
    ProtocolVersion, TASKS_EXTENSION_ID, TaskPayload,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(tool)) = (args.next(), args.next()) else {
        return Err("usage: rmcp-client URL TOOL [ARGUMENTS-JSON]".into());
    };
    let arguments = args.next().unwrap_or_else(|| "{}".into());
    let seen = tokio::time::timeout(LIMIT, drive(url, tool, &arguments)).await??;
    println!("{seen}");
    Ok(())
}

async fn drive(url: String, tool: String, arguments: &str) -> Result<Value, Box<dyn Error>> {
    let mut capabilities = ClientCapabilities::default();
    capabilities.extensions.get_or_insert_default().insert(TASKS_EXTENSION_ID.into(), Default::default());
    let config = ClientConfig::new(capabilities, Implementation::new("raincheck-interop-rmcp", "0"));
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = config.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url), lifecycle).await?;

    let started = Instant::now();
    let params = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(arguments)?);
    let task = match client.call_tool_once(params).await? {
        CallToolResponse::Task(created) => created.task,
        other => return Err(format!("no task: the call was answered with {other:?}").into()),
    };

    let handle_after = started.elapsed();
    let mut statuses = vec![json!(task.status)];
    let mut poll = task.poll_interval_ms;
    let result = loop {
        tokio::time::sleep(Duration::from_millis(poll.unwrap_or(200))).await;
        let now = client.peer().get_task(GetTaskParams::new(task.task_id.clone())).await?.task;
        poll = now.task.poll_interval_ms.or(poll);
        statuses.push(json!(now.task.status));
        match now.payload {
            TaskPayload::Completed { result } => break result,
            TaskPayload::Working => {}
            other => return Err(format!("task {} ended as {other:?}", task.task_id).into()),
        }
    };
    client.cancel().await?;
    Ok(json!({
        "taskId": task.task_id, "handleMs": handle_after.as_millis() as u64, "statuses": statuses,
        "text": result["content"][0]["text"], "isError": result.get("isError").and_then(Value::as_bool).unwrap_or(false),
    }))
}
