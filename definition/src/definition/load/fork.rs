//! Other forms of FORK and JOIN: `forkPaths`, and the legacy form with `forkId`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Loader;
use crate::definition::EdgeDefinition;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Span, Tree};

/// Rewrites every FORK and JOIN to `forkPathIds` and `childNodeIds`.
pub(super) fn resolve_forks(loader: &mut Loader, nodes: &mut [Tree], edges: &[EdgeDefinition]) {
    let mut legacy = BTreeMap::new();
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let is_short = |node: &Tree| !config_has(node, "childNodeIds") && !config_has(node, "forkPaths");
    if nodes.iter().any(|node| is(node, "FORK") && is_short(node)) {
        for edge in edges {
            children
                .entry(&edge.source_node_id)
                .or_default()
                .push(&edge.target_node_id);
        }
    }
    for node in nodes.iter_mut().filter(|node| is(node, "FORK")) {
        let id = node.get("id").and_then(Tree::as_text).unwrap_or_default().to_owned();
        let targets = children.get(id.as_str()).map(Vec::as_slice).unwrap_or_default();
        if let Some(config) = node.get_mut("config") {
            resolve_pairs(loader, config);
            resolve_fork(loader, config, targets, &mut legacy);
            fill_fork(config, targets);
        }
    }
    for node in nodes.iter_mut().filter(|node| is(node, "JOIN")) {
        if let Some(config) = node.get_mut("config") {
            resolve_join(loader, config, &legacy);
        }
    }
    fill_joins(nodes, edges);
}

fn is(node: &Tree, word: &str) -> bool {
    node.get("type").and_then(Tree::as_text) == Some(word)
}

fn config_has(node: &Tree, key: &str) -> bool {
    node.get("config").is_some_and(|config| config.get(key).is_some())
}

/// Fills absent `childNodeIds` from the FORK's edges, and absent `forkPathIds` from the ids of the children.
fn fill_fork(config: &mut Tree, targets: &[&str]) {
    let span = config.span;
    if config.get("childNodeIds").is_none() && !targets.is_empty() {
        let children = targets.iter().map(|target| Tree::text(span, *target)).collect();
        config.put("childNodeIds", list(span, children));
    }
    if config.get("forkPathIds").is_none()
        && let Some(children) = config.get("childNodeIds").cloned()
    {
        config.put("forkPathIds", children);
    }
}

/// Fills a JOIN without `forkPathIds` from a FORK: the first one, in file order, whose branches reach this JOIN before any other.
fn fill_joins(nodes: &mut [Tree], edges: &[EdgeDefinition]) {
    let is_short = |node: &Tree| {
        is(node, "JOIN")
            && !["forkPathIds", "joinId", "forkId"]
                .iter()
                .any(|key| config_has(node, key))
    };
    if !nodes.iter().any(is_short) {
        return;
    }
    let mut filled: BTreeMap<usize, Tree> = BTreeMap::new();
    {
        let next = transitions(nodes, edges);
        for (place, fork) in nodes.iter().enumerate().filter(|(_, node)| is(node, "FORK")) {
            let paths = fork.get("config").and_then(|config| config.get("forkPathIds"));
            if let (Some(paths), Some(join)) = (paths, first_join(nodes, &next, place))
                && is_short(&nodes[join])
            {
                filled.entry(join).or_insert_with(|| paths.clone());
            }
        }
    }
    for (join, paths) in filled {
        if let Some(config) = nodes[join].get_mut("config") {
            let span = config.span;
            config.put("forkPathIds", Tree { span, ..paths });
        }
    }
}

/// Returns the nodes that a thread may enter from each node, as far as they could be read.
fn transitions(nodes: &[Tree], edges: &[EdgeDefinition]) -> Vec<Vec<usize>> {
    let ids = nodes.iter().enumerate();
    let places: BTreeMap<&str, usize> = ids
        .filter_map(|(place, node)| Some((node.get("id")?.as_text()?, place)))
        .collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for edge in edges {
        let ends = (
            places.get(edge.source_node_id.as_str()),
            places.get(edge.target_node_id.as_str()),
        );
        if let (Some(from), Some(to)) = ends {
            next[*from].push(*to);
        }
    }
    for (place, node) in nodes.iter().enumerate() {
        let config = node.get("config");
        let routes = config
            .and_then(|config| config.get("routes")?.as_list())
            .unwrap_or_default();
        let named = routes.iter().filter_map(|route| route.get("targetNodeId"));
        let default = config.and_then(|config| config.get("defaultTargetNodeId"));
        let on_error = node.get("onError").and_then(|on_error| on_error.get("targetNodeId"));
        let targets = named.chain(default).chain(on_error).filter_map(Tree::as_text);
        next[place].extend(targets.filter_map(|id| places.get(id)));
    }
    next
}

/// Returns the first JOIN that the branches of a FORK reach, not counting those of nested forks.
fn first_join(nodes: &[Tree], next: &[Vec<usize>], fork: usize) -> Option<usize> {
    let mut seen = BTreeSet::from([fork]);
    let mut open: VecDeque<(usize, u32)> = next[fork].iter().map(|child| (*child, 0)).collect();
    while let Some((place, inside)) = open.pop_front() {
        if !seen.insert(place) {
            continue;
        }
        let inside = match (is(&nodes[place], "JOIN"), inside) {
            (true, 0) => return Some(place),
            (true, deeper) => deeper - 1,
            (false, inside) => inside + u32::from(is(&nodes[place], "FORK")),
        };
        open.extend(next[place].iter().map(|next| (*next, inside)));
    }
    None
}

/// Converts `forkPaths: [{pathId, childNodeId}]` to the two lists.
fn resolve_pairs(loader: &mut Loader, config: &mut Tree) {
    let Some(pairs) = config.take("forkPaths") else { return };
    if config.get("forkPathIds").is_some() || config.get("childNodeIds").is_some() {
        let message = "`forkPaths` replaces `forkPathIds` and `childNodeIds`; remove one of the two forms";
        loader.fault_in(FaultCode::DuplicateField, &pairs.value, message);
        return;
    }
    let Some(items) = pairs.value.as_list() else {
        let message = format!("`forkPaths`: expected a list, found {}", pairs.value.kind());
        loader.fault_in(FaultCode::InvalidForkPathIds, &pairs.value, message);
        return;
    };
    let mut columns = [Vec::new(), Vec::new()];
    for item in items {
        if !item.is_object() {
            let message = format!("`forkPaths`: expected an object, found {}", item.kind());
            loader.fault_in(FaultCode::InvalidForkPathIds, item, message);
            continue;
        }
        for (column, field) in columns.iter_mut().zip(["pathId", "childNodeId"]) {
            match item.get(field) {
                Some(value) => column.push(value.clone()),
                None => loader.fault_in(FaultCode::MissingField, item, format!("`{field}` is missing")),
            }
        }
    }
    let [paths, children] = columns;
    config.put("childNodeIds", list(pairs.value.span, children));
    config.put("forkPathIds", list(pairs.value.span, paths));
}

/// Converts `forkId` with k children to `[forkId]` for k = 0 and k = 1, and to `[forkId#0, ...]` otherwise.
fn resolve_fork(loader: &mut Loader, config: &mut Tree, targets: &[&str], legacy: &mut BTreeMap<String, Tree>) {
    let Some(member) = config.take("forkId") else { return };
    let Some(id) = member.value.as_text() else {
        let message = format!("`forkId`: expected text, found {}", member.value.kind());
        loader.fault_in(FaultCode::InvalidForkPathIds, &member.value, message);
        return;
    };
    if let Some(paths) = config.get("forkPathIds") {
        legacy.insert(id.to_owned(), paths.clone());
        loader.warn_in(
            FaultCode::LegacyForm,
            &member.value,
            "`forkId` is ignored: `forkPathIds` replaces it",
        );
        return;
    }
    let span = member.value.span;
    if config.get("childNodeIds").is_none() {
        let children = targets.iter().map(|target| Tree::text(span, *target)).collect();
        config.put("childNodeIds", list(span, children));
    }
    let count = config
        .get("childNodeIds")
        .and_then(Tree::as_list)
        .map_or(0, <[Tree]>::len);
    let paths: Vec<Tree> = match count {
        // Without edges, the missing children are the fault; a JOIN with the same id has none.
        0 | 1 => vec![Tree::text(span, id)],
        _ => (0..count)
            .map(|place| Tree::text(span, format!("{id}#{place}")))
            .collect(),
    };
    let shown: Vec<&str> = paths.iter().filter_map(Tree::as_text).collect();
    let message = format!(
        "`forkId` is deprecated; it is read as `forkPathIds` [{}]",
        shown.join(", ")
    );
    loader.warn_in(FaultCode::LegacyForm, &member.value, message);
    let paths = list(span, paths);
    legacy.insert(id.to_owned(), paths.clone());
    config.put("forkPathIds", paths);
}

/// Converts `joinId` or `forkId` to the list of the FORK with that `forkId`.
fn resolve_join(loader: &mut Loader, config: &mut Tree, legacy: &BTreeMap<String, Tree>) {
    let members: Vec<_> = ["joinId", "forkId"]
        .into_iter()
        .filter_map(|key| config.take(key))
        .collect();
    let Some(member) = members.first() else { return };
    let Some(id) = member.value.as_text() else {
        let message = format!("`{}`: expected text, found {}", member.key, member.value.kind());
        loader.fault_in(FaultCode::InvalidForkPathIds, &member.value, message);
        return;
    };
    if config.get("forkPathIds").is_some() {
        let message = format!("`{}` is ignored: `forkPathIds` replaces it", member.key);
        loader.warn_in(FaultCode::LegacyForm, &member.value, message);
        return;
    }
    let known = members
        .iter()
        .filter_map(|member| member.value.as_text())
        .find_map(|id| legacy.get(id));
    let span = member.value.span;
    let paths = match known {
        Some(paths) => paths.clone(),
        None => list(span, vec![Tree::text(span, id)]),
    };
    let message = format!(
        "`{}` is deprecated; it is read as the `forkPathIds` of its FORK",
        member.key
    );
    loader.warn_in(FaultCode::LegacyForm, &member.value, message);
    config.put(
        "forkPathIds",
        Tree {
            span,
            value: paths.value,
        },
    );
}

fn list(span: Span, items: Vec<Tree>) -> Tree {
    Tree {
        span,
        value: Json::List(items),
    }
}
