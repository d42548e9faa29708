//! The page of a user.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge};

#[tokio::test]
async fn the_page_of_a_user_shows_only_activities_that_the_visitor_can_see() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "secret", "visibility_level": 0 })).await;
    ann.make("/projects/2/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    ann.make("/projects/1/issues", json!({ "title": "It <b>leaks</b>" })).await;
    ann.make("/projects/1/issues", json!({ "title": "a confidential leak", "confidential": true })).await;
    ann.make("/projects/2/issues", json!({ "title": "a private leak" })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# x\n");
    forge.push_all(&ann, ProjectId::new(2), &local).await;

    let pages = [
        // Two projects, three issues and a push.
        (forge.signed_in_browser("ann").await, "6 activities", true, true),
        // Of the private project, and what everyone sees: the membership is an event of dan.
        (forge.signed_in_browser("dan").await, "5 activities", true, false),
        (forge.signed_in_browser("bob").await, "2 activities", false, false),
        (forge.browser(), "2 activities", false, false),
    ];
    for (number, (visitor, activities, sees_private, sees_confidential)) in pages.iter().enumerate() {
        let page = visitor.get("/ann").await;
        assert_eq!(page.code(), 200, "{page}");
        let summary = format!("{activities} in the last year, on 1 day; most on 2 Jan 2026 (");
        assert!(page.text.contains(&summary), "{number}: {summary} {page}");
        assert!(page.text.contains("opened issue <a href=\"/ann/rocket/-/issues/1\"><bdi>#1</bdi></a>"), "{page}");
        assert!(page.text.contains("It &lt;b&gt;leaks&lt;/b&gt;"), "{page}");
        assert_eq!(page.text.contains("a private leak"), *sees_private, "{number}: {page}");
        assert_eq!(page.text.contains("pushed new branch"), *sees_private, "{number}: {page}");
        assert_eq!(page.text.contains("a confidential leak"), *sees_confidential, "{number}: {page}");
    }
}

#[tokio::test]
async fn the_calendar_forgets_activities_after_a_year() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    let visitor = forge.browser();
    assert!(visitor.get("/ann").await.text.contains("<rect class=\"level-1\""));
    for (days, expected) in [(300, "1 activity in the last year"), (100, "No activities in the last year")] {
        forge.clock.advance(jiff::SignedDuration::from_hours(days * 24));
        let page = visitor.get("/ann").await;
        assert!(page.text.contains(expected), "{page}");
    }
    // It is still in the list.
    assert!(visitor.get("/ann").await.text.contains("created project"));
}
