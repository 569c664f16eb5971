//! The built-in tools, one line each.

mod current_time;
mod get_course_detail;
mod get_course_recommendation;
mod search_knowledge;

use std::sync::Arc;

use amalgam_core::{Clock, assistant::catalog::ToolSeed, store::CourseStore};

use crate::{builtin::Builtin, knowledge::KnowledgePorts};

/// What the built-in tools reach the rest of the program through.
#[derive(Clone)]
pub struct Ports {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The catalogue of courses; its tools are not there without it.
    pub courses: Option<CoursePorts>,
    /// What was imported; its tool is not there without it.
    pub knowledge: Option<KnowledgePorts>,
}

/// What the tools of the catalogue need.
#[derive(Clone)]
pub struct CoursePorts {
    /// The courses.
    pub store: Arc<dyn CourseStore>,
    /// Where callers reach this server: what links to further pages begin with.
    pub base_url: String,
}

/// All built-in tools.
pub fn builtins(ports: &Ports) -> Vec<Builtin> {
    let mut tools = vec![current_time::builtin(Arc::clone(&ports.clock))];
    if let Some(courses) = &ports.courses {
        tools.push(get_course_detail::builtin(courses));
        tools.push(get_course_recommendation::builtin(courses));
    }
    if let Some(knowledge) = &ports.knowledge {
        tools.push(search_knowledge::builtin(knowledge));
    }
    tools
}

/// A tool whose words are those that the bank is seeded with, so that the two cannot drift apart.
fn seeded(seed: ToolSeed, run: Arc<dyn amalgam_core::Handler>) -> Builtin {
    let ToolSeed { name, description, guidance, .. } = seed;
    Builtin { name, description, parameters: seed.bank_tool(0).parameters, guidance, run }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
