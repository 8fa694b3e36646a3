//! Which path is answered how.

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use super::answer::{Answer, other_method, refused, text, value};
use super::door::Secrecy;
use super::{Admin, held, metrics, tasks};
use crate::store::Health;

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route<'a> {
    Healthz,
    Readyz,
    Metrics,
    Tasks,
    Held,
    Task(&'a str),
    Cancel(&'a str),
    Tools,
    Page,
    Script,
    Style,
}

pub(super) async fn answer(admin: &Admin, request: &Parts) -> Answer {
    let route = Route::of(request.uri.path());
    let secrecy = route.map_or(Secrecy::Operators, Route::secrecy);
    if let Err(answer) = admin.door.admit(request, secrecy) {
        return *answer;
    }
    let Some(route) = route else { return refused(StatusCode::NOT_FOUND, "there is nothing here") };
    let allowed = if let Route::Cancel(_) = route { "POST" } else { "GET, HEAD" };
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if is_read == (allowed == "POST") || !(is_read || request.method == Method::POST) {
        return other_method(allowed);
    }
    match route {
        Route::Healthz => text(StatusCode::OK, "text/plain", "ok\n"),
        Route::Readyz => ready(admin),
        Route::Metrics => text(StatusCode::OK, metrics::TYPE, metrics::write(&admin.runner, &admin.servers)),
        Route::Tasks => tasks::list(&admin.runner, &admin.owners, request.uri.query().unwrap_or_default()).await,
        Route::Held => held::list(&admin.runner, &admin.owners, request.uri.query().unwrap_or_default()),
        Route::Task(id) => tasks::show(&admin.runner, &admin.owners, id),
        Route::Cancel(id) => tasks::cancel(&admin.runner, &admin.owners, id).await,
        Route::Tools => value(StatusCode::OK, &json!({ "tools": admin.runner.history().measured() })),
        Route::Page => text(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html")),
        Route::Script => text(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page.js")),
        Route::Style => text(StatusCode::OK, "text/css; charset=utf-8", include_str!("page.css")),
    }
}

/// Whether calls are taken: nothing that is slow to find out.
fn ready(admin: &Admin) -> Answer {
    let why = match admin.runner.store().health() {
        _ if admin.runner.is_draining() => "it is stopping".to_owned(),
        Health::Ready => return text(StatusCode::OK, "text/plain", "ready\n"),
        Health::LowSpace(low) => low.to_string(),
        Health::Full { max } => {
            format!("the task store holds its {max} tasks; wait until some expire, raise store.max_tasks or lower keep")
        }
        Health::Failed(failed) => failed.to_string(),
        Health::Closed => "the store is closed".to_owned(),
    };
    text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("not ready: {why}\n"))
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Option<Self> {
        Some(match path {
            "/" => Self::Page,
            "/page.js" => Self::Script,
            "/page.css" => Self::Style,
            "/healthz" => Self::Healthz,
            "/readyz" => Self::Readyz,
            "/metrics" => Self::Metrics,
            "/api/tasks" => Self::Tasks,
            "/api/held" => Self::Held,
            "/api/tools" => Self::Tools,
            path => {
                let rest = path.strip_prefix("/api/tasks/")?;
                match rest.split_once('/') {
                    None => Self::Task(rest),
                    Some((id, "cancel")) => Self::Cancel(id),
                    Some(_) => return None,
                }
            }
        })
    }

    fn secrecy(self) -> Secrecy {
        match self {
            Self::Healthz | Self::Readyz | Self::Page | Self::Script | Self::Style => Secrecy::Open,
            Self::Metrics | Self::Tasks | Self::Held | Self::Task(_) | Self::Cancel(_) | Self::Tools => {
                Secrecy::Operators
            }
        }
    }
}
