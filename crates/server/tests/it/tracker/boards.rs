//! Issue boards; `labels_contract.txt` checks them against the contract line by line.

use model::{LabelId, ProjectId};
use serde_json::json;
use testkit::{TestClient, TestForge};

use crate::tracker::labels::{label, start};

/// Adds lists for new labels to the board of a project; returns the path of the lists, and the labels.
async fn board(ann: &TestClient, project: ProjectId, lists: usize) -> (String, Vec<LabelId>) {
    let path = format!("/projects/{project}/boards/{project}/lists");
    let mut labels = Vec::new();
    for number in 0..lists {
        let id = label(ann, project, &format!("l{number:02}")).await;
        assert_eq!(ann.post(&path, json!({ "label_id": id.get() })).await.json()["position"], number);
        labels.push(id);
    }
    (path, labels)
}

/// Checks that the positions of the lists of a board have no gaps; returns the number of lists.
async fn check_positions(ann: &TestClient, path: &str) -> usize {
    let lists = ann.get(&format!("{path}?per_page=100")).await;
    let count = lists.json().as_array().map_or(0, Vec::len);
    let expected: Vec<String> = (0..count).map(|position| position.to_string()).collect();
    assert_eq!(lists.join_field("position"), expected.join(" "), "{lists}");
    count
}

#[tokio::test]
async fn every_project_is_created_with_a_board() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    let group = root.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let projects = [
        ann.make("/projects", json!({ "name": "own" })).await,
        root.make(&format!("/projects/user/{}", ann.id), json!({ "name": "gift" })).await,
        root.make("/projects", json!({ "name": "common", "namespace_id": group })).await,
        root.make("/projects/fork/1", json!({ "namespace": "acme" })).await,
    ];
    for project in projects {
        let boards = root.get(&format!("/projects/{project}/boards")).await;
        assert_eq!(boards.json(), json!([{ "id": project, "lists": [] }]));
        assert_eq!(boards.header("x-total"), "1");
    }
}

#[tokio::test]
async fn lists_move_in_both_directions_without_gaps() {
    let (_forge, ann, _, [own, _]) = start().await;
    let (path, _) = board(&ann, own, 5).await;
    for (list, position, expected) in [
        (5, 0, "5 1 2 3 4"),
        (5, 4, "1 2 3 4 5"),
        (2, 3, "1 3 4 2 5"),
        (4, 1, "1 4 3 2 5"),
        (1, 1, "4 1 3 2 5"),
        (5, 3, "4 1 3 5 2"),
    ] {
        let moved = ann.put(&format!("{path}/{list}"), json!({ "position": position })).await;
        assert_eq!((moved.code(), &moved.json()["position"]), (200, &json!(position)));
        assert_eq!(ann.get(&path).await.join_field("id"), expected);
        check_positions(&ann, &path).await;
    }
    for (list, position, left) in [(1, 1, "4 3 5 2"), (4, 0, "3 5 2"), (2, 2, "3 5"), (5, 1, "3"), (3, 0, "")] {
        let removed = ann.delete(&format!("{path}/{list}")).await;
        assert_eq!((removed.code(), &removed.json()["position"]), (200, &json!(position)));
        assert_eq!(ann.get(&path).await.join_field("id"), left);
        check_positions(&ann, &path).await;
    }
}

/// Removed lists are soft-deleted, and the label can get a new list.
#[tokio::test]
async fn a_removed_list_is_not_found() {
    let (forge, ann, _, [own, _]) = start().await;
    let (path, labels) = board(&ann, own, 2).await;
    ann.delete(&format!("{path}/1")).await;
    assert_eq!(forge.dump().lines().filter(|line| line.starts_with("board_lists: ")).count(), 2);
    for response in [
        ann.get(&format!("{path}/1")).await,
        ann.put(&format!("{path}/1"), json!({ "position": 0 })).await,
        ann.delete(&format!("{path}/1")).await,
    ] {
        assert_eq!((response.code(), response.json()), (404, json!({ "message": "404 Not found" })));
    }
    let again = ann.post(&path, json!({ "label_id": labels[0].get() })).await.json();
    assert_eq!((&again["id"], &again["position"]), (&json!(3), &json!(1)));
    ann.delete(&format!("{path}/3")).await;
    // Deleting the label also deletes the rows of its removed lists.
    ann.delete(&format!("/projects/{own}/labels?name=l00")).await;
    assert_eq!(forge.dump().lines().filter(|line| line.starts_with("board_lists: ")).count(), 1);
    assert_eq!(ann.get(&path).await.join_field("id"), "2");
}

#[tokio::test]
async fn a_list_shows_the_present_fields_of_its_label() {
    let (_forge, ann, _, [own, _]) = start().await;
    let (path, _) = board(&ann, own, 1).await;
    let edit = json!({ "name": "l00", "new_name": "Doing", "color": "#5CB85C", "description": "In work" });
    ann.put(&format!("/projects/{own}/labels"), edit).await;
    let list = json!({
        "id": 1, "label": { "id": 1, "name": "Doing", "color": "#5CB85C", "description": "In work" }, "position": 0,
    });
    assert_eq!(ann.get(&format!("{path}/1")).await.json(), list);
    assert_eq!(ann.get(&format!("/projects/{own}/boards")).await.json(), json!([{ "id": own.get(), "lists": [list] }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_moves_leave_no_gap() {
    let (_forge, ann, _, [own, _]) = start().await;
    let (path, _) = board(&ann, own, 8).await;
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let (ann, path) = (ann.clone(), path.clone());
            tokio::spawn(async move {
                let mut codes = Vec::new();
                for round in 0..4 {
                    let (list, position) = ((number + round) % 8 + 1, (number * 5 + round * 3) % 8);
                    let moved = ann.put(&format!("{path}/{list}"), json!({ "position": position })).await;
                    codes.push(moved.code());
                }
                codes
            })
        })
        .collect();
    let mut moved = 0;
    for task in tasks {
        for code in task.await.expect("responses") {
            assert!(matches!(code, 200 | 400), "{code}");
            moved += usize::from(code == 200);
        }
    }
    assert!(moved >= 8, "{moved}");
    assert_eq!(check_positions(&ann, &path).await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_lists_and_labels_leave_no_gap() {
    let (forge, ann, _, [own, _]) = start().await;
    let (path, labels) = board(&ann, own, 8).await;
    let tasks: Vec<_> = (0..32_usize)
        .map(|number| {
            let (ann, path, label) = (ann.clone(), path.clone(), labels[number % 8]);
            tokio::spawn(async move {
                let mut responses = Vec::new();
                for round in 0..4 {
                    let list = format!("{path}/{}", (number + round) % 8 + 1);
                    responses.push(match (number + round) % 5 {
                        0 => ann.delete(&list).await,
                        1 | 2 => ann.post(&path, json!({ "label_id": label.get() })).await,
                        3 if number % 8 == 7 => {
                            ann.delete(&format!("/projects/{own}/labels?name=l{:02}", number % 8)).await
                        }
                        _ => ann.put(&list, json!({ "position": (number * 5 + round) % 8 })).await,
                    });
                }
                responses
            })
        })
        .collect();
    for task in tasks {
        for response in task.await.expect("responses") {
            assert!(matches!(response.code(), 200 | 400 | 404), "{response}");
        }
    }
    check_positions(&ann, &path).await;
    // No label has two lists.
    let mut shown: Vec<i64> = Vec::new();
    for list in ann.get(&format!("{path}?per_page=100")).await.json().as_array().expect("a list") {
        let label = list["label"]["id"].as_i64().expect("a number");
        assert!(!shown.contains(&label), "{label} twice");
        shown.push(label);
    }
    assert_eq!(forge.dump().lines().filter(|line| line.starts_with("boards: ")).count(), 2);
}

/// Boards and lists of another project cannot be read or changed, even with permissions in both projects.
#[tokio::test]
async fn boards_and_lists_of_another_project_are_not_found() {
    let (forge, ann, bob, [own, other]) = start().await;
    board(&ann, own, 2).await;
    let label = label(&ann, other, "mine").await;
    let theirs = ProjectId::new(bob.make("/projects", json!({ "name": "theirs" })).await);
    board(&bob, theirs, 1).await;
    let before = forge.dump();
    for board in [own, theirs, ProjectId::new(99)] {
        let lists = format!("/projects/{other}/boards/{board}/lists");
        for response in [
            ann.get(&lists).await,
            ann.get(&format!("{lists}/1")).await,
            ann.post(&lists, json!({ "label_id": label.get() })).await,
            ann.put(&format!("{lists}/1"), json!({ "position": 1 })).await,
            ann.delete(&format!("{lists}/1")).await,
        ] {
            assert_eq!((response.code(), response.json()), (404, json!({ "message": "404 Board Not Found" })));
        }
    }
    // The board is valid, but the list belongs to another board.
    for list in [1, 2, 3] {
        let list = format!("/projects/{other}/boards/{other}/lists/{list}");
        for response in [ann.get(&list).await, ann.put(&list, json!({ "position": 1 })).await, ann.delete(&list).await]
        {
            assert_eq!((response.code(), response.json()), (404, json!({ "message": "404 Not found" })));
        }
    }
    assert_eq!(forge.dump(), before);
}

/// Every project is created with a board; if a board is missing nevertheless, no endpoint fails.
#[tokio::test]
async fn a_missing_board_is_not_found() {
    let (forge, ann, _, [own, _]) = start().await;
    let bug = label(&ann, own, "bug").await;
    forge.execute_sql(&format!("DELETE FROM boards WHERE project_id = {own}"));
    assert_eq!(ann.get(&format!("/projects/{own}/boards")).await.text, "[]");
    let lists = format!("/projects/{own}/boards/{own}/lists");
    assert_eq!(
        ann.post(&lists, json!({ "label_id": bug.get() })).await.json(),
        json!({ "message": "404 Board Not Found" })
    );
    assert_eq!(ann.delete(&format!("/projects/{own}/labels?name=bug")).await.code(), 200);
}
