//! Settings of nodes, edges and routes that are independent of their type.

use std::time::Duration;

use pirn_definition::definition::{EdgeDefinition, InDoubt, NodeConfig, NodeDefinition, OnError, RetryPolicy, Route};

use super::{Enters, Node, WorkflowBuilder, milliseconds};

/// Settings of a node, see [`WorkflowBuilder::at`].
#[derive(Debug)]
pub struct NodeSettings<'a, 'f, K> {
    flow: &'a mut WorkflowBuilder<'f, K>,
    node: Node<'f>,
}

impl<'a, 'f, K> NodeSettings<'a, 'f, K> {
    pub(super) fn new(flow: &'a mut WorkflowBuilder<'f, K>, node: Node<'f>) -> Self {
        Self { flow, node }
    }

    fn set(&mut self, set: impl FnOnce(&mut NodeDefinition)) -> &mut Self {
        set(self.flow.definition_of(self.node));
        self
    }

    /// Sets a name for display.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.set(|node| node.name = Some(name.into()))
    }

    /// Sets a description for display.
    pub fn description(&mut self, description: impl Into<String>) -> &mut Self {
        self.set(|node| node.description = Some(description.into()))
    }

    /// Sets the retry policy: `RetryPolicy::attempts(3)`.
    pub fn retry(&mut self, policy: RetryPolicy) -> &mut Self {
        self.set(|node| node.retry = Some(policy))
    }

    /// Sets the time limit of one attempt.
    pub fn timeout(&mut self, limit: Duration) -> &mut Self {
        self.set(|node| node.timeout_ms = Some(milliseconds(limit)))
    }

    /// Sets the node at which a thread continues when every attempt has failed.
    pub fn on_error(&mut self, target: impl Enters<'f>) -> &mut Self {
        let target_node_id = self.flow.id_of(target.node());
        self.set(|node| node.on_error = Some(OnError { target_node_id }))
    }

    /// Sets the policy for a call that was in progress when the process of a durable run ended.
    pub fn in_doubt(&mut self, policy: InDoubt) -> &mut Self {
        self.set(|node| node.in_doubt = Some(policy))
    }
}

/// Settings of an edge, see [`WorkflowBuilder::edge`].
#[derive(Debug)]
pub struct EdgeSettings<'a>(pub(super) &'a mut EdgeDefinition);

impl EdgeSettings<'_> {
    /// Sets the expression under which the edge is taken.
    pub fn when(&mut self, condition: impl Into<String>) -> &mut Self {
        self.0.condition = Some(condition.into());
        self
    }

    /// Sets the weight. If several edges qualify, the one with the greatest weight is taken, then the earliest.
    pub fn weight(&mut self, weight: f64) -> &mut Self {
        self.0.weight = weight;
        self
    }

    /// Sets a label for display.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.0.label = Some(label.into());
        self
    }
}

/// Settings of a route, see [`WorkflowBuilder::when`].
#[derive(Debug)]
pub struct RouteSettings<'a>(Option<&'a mut Route>);

impl<'a> RouteSettings<'a> {
    pub(super) fn push(node: &'a mut NodeDefinition, condition: String, target_node_id: String) -> Self {
        let NodeConfig::Route(config) = &mut node.config else {
            // Cannot occur: only `WorkflowBuilder::route` creates the handle of a route.
            return Self(None);
        };
        config.routes.push(Route {
            condition,
            target_node_id,
            priority: 0.0,
        });
        Self(config.routes.last_mut())
    }

    /// Sets the priority (default 0); routes of higher priority are tried first.
    pub fn priority(&mut self, priority: f64) -> &mut Self {
        if let Some(route) = &mut self.0 {
            route.priority = priority;
        }
        self
    }
}
