//! Numbers about the instance as a whole, for its operator.

use diesel::{RunQueryDsl as _, sql_types::BigInt};

use crate::{Conn, Result, conn::on, fragment::Fragment};

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// All users.
    pub users: i64,
    /// Users who can sign in.
    pub active_users: i64,
    /// Administrators who can sign in.
    pub administrators: i64,
    /// Groups.
    pub groups: i64,
    /// Projects.
    pub projects: i64,
    /// Issues in all states.
    pub issues: i64,
    /// Runners.
    pub runners: i64,
    /// The size of all repositories, in bytes; packs that several repositories share count once.
    pub repository_bytes: i64,
    /// The size of all uploads, in bytes.
    pub upload_bytes: i64,
    /// The size of all artifacts, in bytes.
    pub artifact_bytes: i64,
}

/// Counts everything.
pub fn get(db: &mut Conn) -> Result<Statistics> {
    let mut count = |sql: &'static str| -> Result<i64> {
        let query = || Fragment::<BigInt>::new(sql);
        Ok(on!(db, conn => query().get_result(conn))?)
    };
    Ok(Statistics {
        users: count("SELECT count(*) FROM users")?,
        active_users: count("SELECT count(*) FROM users WHERE state = 'active'")?,
        administrators: count("SELECT count(*) FROM users WHERE state = 'active' AND admin")?,
        groups: count("SELECT count(*) FROM namespaces WHERE kind = 'group'")?,
        projects: count("SELECT count(*) FROM projects WHERE deleted_at IS NULL")?,
        // The counters of projects are far fewer than the issues.
        issues: count("SELECT CAST(coalesce(sum(open_issues + closed_issues), 0) AS BIGINT) FROM issue_books")?,
        runners: count("SELECT count(*) FROM runners")?,
        repository_bytes: count("SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM packs")?,
        upload_bytes: count("SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM uploads")?,
        artifact_bytes: count("SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM build_artifacts")?,
    })
}
