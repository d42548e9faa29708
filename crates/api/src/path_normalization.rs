//! Encodes names in paths that contain slashes or end like a format suffix.

use axum::http::Method;

/// Returns the path with the name of a branch, a tag or a label as one segment: `feature/x` becomes `feature%2Fx`. Returns
/// `None` if the path contains no such name.
pub(crate) fn encode_slashes_in_name(method: &Method, path: &str) -> Option<String> {
    let (project, rest) = path.strip_prefix("/api/v3/projects/")?.split_once('/')?;
    if let Some(name) = rest.strip_prefix("labels/") {
        return encode_label(project, name);
    }
    if let Some(name) = rest.strip_prefix("builds/artifacts/") {
        return encode_artifacts_ref(project, name);
    }
    if let Some(name) = rest.strip_prefix("ref/") {
        return encode_trigger_ref(project, name);
    }
    let (kind, name) = rest.strip_prefix("repository/")?.split_once('/')?;
    // The only segments that may follow a name, with their methods. `OPTIONS` asks for the methods of the longer path, too.
    let suffixes: &[&str] = match (kind, method) {
        ("branches", &(Method::PUT | Method::OPTIONS)) => &["protect", "unprotect"],
        ("tags", &(Method::POST | Method::PUT | Method::OPTIONS)) => &["release"],
        ("branches" | "tags", _) => &[],
        // A branch may be called `data.json`. Further segments here are part of the route.
        ("commits" | "blobs" | "raw_blobs", _) => return (!name.contains('/')).then(|| path.to_owned()),
        _ => return None,
    };
    let mut parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    let last = parts.last().map(|last| last.strip_suffix(".json").unwrap_or(last));
    let suffix = last.and_then(|last| suffixes.iter().find(|suffix| **suffix == last && parts.len() > 1));
    parts.truncate(parts.len() - usize::from(suffix.is_some()));
    if parts.is_empty() {
        return None;
    }
    let mut encoded = format!("/api/v3/projects/{project}/repository/{kind}/{}", parts.join("%2F"));
    if let Some(suffix) = suffix {
        encoded.push('/');
        encoded.push_str(suffix);
    }
    Some(encoded)
}

/// The same for a label, which is in a path only for its subscription.
fn encode_label(project: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    let (last, name) = parts.split_last()?;
    let is_subscription = last.strip_suffix(".json").unwrap_or(last) == "subscription" && !name.is_empty();
    is_subscription.then(|| format!("/api/v3/projects/{project}/labels/{}/subscription", name.join("%2F")))
}

/// The same for the branch or tag of a triggered pipeline.
fn encode_trigger_ref(project: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    let (name, [trigger, builds]) = parts.split_last_chunk()?;
    let is_trigger = *trigger == "trigger" && builds.strip_suffix(".json").unwrap_or(builds) == "builds";
    (is_trigger && !name.is_empty())
        .then(|| format!("/api/v3/projects/{project}/ref/{}/trigger/builds", name.join("%2F")))
}

/// The same for the branch or tag of an artifacts download.
fn encode_artifacts_ref(project: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    let (last, name) = parts.split_last()?;
    let is_download = last.strip_suffix(".json").unwrap_or(last) == "download" && !name.is_empty();
    is_download.then(|| format!("/api/v3/projects/{project}/builds/artifacts/{}/download", name.join("%2F")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: &str, expected: Option<&str>) {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let method = method.parse().expect("a method");
        let actual = encode_slashes_in_name(&method, &format!("/api/v3/projects/{path}"));
        let expected = expected.map(|path| format!("/api/v3/projects/{path}"));
        assert_eq!(actual, expected, "{request}");
    }

    #[test]
    fn a_name_with_slashes_is_one_segment() {
        check("GET 1/repository/branches/main", Some("1/repository/branches/main"));
        check("GET 1/repository/branches/feature/x.y", Some("1/repository/branches/feature%2Fx.y"));
        check("GET 1/repository/branches/feature%2Fx.y", Some("1/repository/branches/feature%2Fx.y"));
        check("GET a%2Fb/repository/tags/v/1", Some("a%2Fb/repository/tags/v%2F1"));
        check("DELETE 1/repository/tags/v//1/", Some("1/repository/tags/v%2F1"));
        check("GET 1/repository/branches", None);
        check("GET 1/repository/branches/", None);
        check("GET 1/repository/tree", None);
        check("GET 1/members/2", None);
    }

    #[test]
    fn an_action_after_a_name_is_no_part_of_it() {
        check("PUT 1/repository/branches/a/b/protect", Some("1/repository/branches/a%2Fb/protect"));
        check("PUT 1/repository/branches/a/unprotect/", Some("1/repository/branches/a/unprotect"));
        check("PUT 1/repository/branches/protect/protect.json", Some("1/repository/branches/protect/protect"));
        check("POST 1/repository/tags/v/1/release", Some("1/repository/tags/v%2F1/release"));
        check("PUT 1/repository/tags/release", Some("1/repository/tags/release"));
        check("OPTIONS 1/repository/tags/v1/release", Some("1/repository/tags/v1/release"));
        // Other methods have no such action, so it is part of the name.
        check("GET 1/repository/branches/a/protect", Some("1/repository/branches/a%2Fprotect"));
        check("PUT 1/repository/branches/a%2Fprotect", Some("1/repository/branches/a%2Fprotect"));
        check("DELETE 1/repository/tags/v1/release", Some("1/repository/tags/v1%2Frelease"));
    }

    #[test]
    fn a_label_with_slashes_is_one_segment() {
        check("POST 1/labels/bug/subscription", Some("1/labels/bug/subscription"));
        check("POST 1/labels/a/b.json/subscription", Some("1/labels/a%2Fb.json/subscription"));
        check("DELETE 1/labels/a%2Fb/subscription.json", Some("1/labels/a%2Fb/subscription"));
        check("DELETE 1/labels/subscription/subscription/", Some("1/labels/subscription/subscription"));
        check("POST 1/labels/subscription", None);
        check("POST 1/labels/a/b", None);
        check("GET 1/labels", None);
    }

    #[test]
    fn a_ref_with_slashes_is_one_segment() {
        check("POST 1/ref/master/trigger/builds", Some("1/ref/master/trigger/builds"));
        check("POST a%2Fb/ref/feature/x/trigger/builds", Some("a%2Fb/ref/feature%2Fx/trigger/builds"));
        check("POST 1/ref/feature%2Fx/trigger/builds.json", Some("1/ref/feature%2Fx/trigger/builds"));
        check("POST 1/ref/trigger/builds/trigger/builds/", Some("1/ref/trigger%2Fbuilds/trigger/builds"));
        check("POST 1/ref/trigger/builds", None);
        check("POST 1/ref/master/trigger", None);
        check("POST 1/ref", None);
        check("GET 1/builds/artifacts/master/download", Some("1/builds/artifacts/master/download"));
        check("GET 1/builds/artifacts/a/b.json/download", Some("1/builds/artifacts/a%2Fb.json/download"));
        check("GET 1/builds/artifacts/download/download.json", Some("1/builds/artifacts/download/download"));
        check("GET 1/builds/artifacts/download", None);
        check("GET 1/builds/7/artifacts", None);
    }

    #[test]
    fn a_name_may_end_like_a_format_suffix() {
        check("GET 1/repository/branches/data.json", Some("1/repository/branches/data.json"));
        check("GET 1/repository/blobs/data.json", Some("1/repository/blobs/data.json"));
        check("GET 1/repository/commits/data.json", Some("1/repository/commits/data.json"));
        check("GET 1/repository/commits/main/diff.json", None);
    }
}
