//! The list of built-in tools.

mod current_time;
mod get_course_detail;
mod get_course_recommendation;
mod search_knowledge;

use std::sync::Arc;

use amalgam_assistant::catalog::ToolSeed;
use amalgam_core::{Clock, store::CourseStore};

use crate::{builtin::Builtin, knowledge::KnowledgePorts};

/// The ports that built-in tools use.
#[derive(Clone)]
pub struct Ports {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The course catalogue; without it, its tools are not available.
    pub courses: Option<CoursePorts>,
    /// The imported documents; without them, their tool is not available.
    pub knowledge: Option<KnowledgePorts>,
}

/// The ports of the catalogue's tools.
#[derive(Clone)]
pub struct CoursePorts {
    /// The courses.
    pub store: Arc<dyn CourseStore>,
    /// The address of this server for callers; links to further pages begin with it.
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

/// A tool with the texts that the bank is seeded with, so that the two cannot differ.
fn seeded(seed: ToolSeed, run: Arc<dyn amalgam_core::Handler>) -> Builtin {
    let ToolSeed { name, description, guidance, .. } = seed;
    Builtin { name, description, parameters: seed.bank_tool(0).parameters, guidance, run }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
