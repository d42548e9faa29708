//! The resources of a test forge, and templates from which further forges are copied.

use std::{fs, path::Path, sync::Arc};

use files::Files;
use forge::InstanceKey;
use model::UserId;
use tempfile::TempDir;

use crate::{
    TestClient, TestForge, TestForgeBuilder,
    bucket::TestBucket,
    clock::{TestClock, TestSecrets},
    database::TestDatabase,
};

/// The database, files, repositories, clock and secrets of one forge.
pub(crate) struct ForgeResources {
    pub(crate) database: TestDatabase,
    pub(crate) files: TempDir,
    pub(crate) git: TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) secrets: Arc<TestSecrets>,
    pub(crate) instance_key: InstanceKey,
}

/// A stopped forge that can be copied, so that expensive test data is created only once.
pub struct ForgeTemplate {
    resources: ForgeResources,
    /// The id and the token of the client. The client itself would keep the forge alive.
    client: (UserId, Option<String>),
}

impl ForgeResources {
    /// Opens the store of files for a node with this folder for caches.
    pub(crate) fn open_files(&self, caches: &Path) -> Files {
        let Some(bucket) = TestBucket::of_all_tests() else {
            return Files::open(self.files.path()).expect("the files folder opens");
        };
        let prefix = self.files.path().file_name().and_then(|name| name.to_str()).expect("a plain name");
        Files::in_bucket(bucket.client(prefix, caches))
    }

    pub(crate) async fn create() -> Self {
        Self {
            database: TestDatabase::create().await,
            files: files_folder(),
            git: in_memory_folder(),
            clock: Arc::default(),
            secrets: Arc::default(),
            instance_key: InstanceKey::generate(&TestSecrets::default()),
        }
    }

    async fn copy(&self) -> Self {
        let (files, git) = (files_folder(), in_memory_folder());
        copy_folder(self.files.path(), files.path());
        // The folders of repositories are built again from the database and the packs.
        let traces = git.path().join("traces");
        fs::create_dir(&traces).expect("a folder");
        copy_folder(&self.git.path().join("traces"), &traces);
        Self {
            database: self.database.copy().await,
            files,
            git,
            clock: Arc::new(self.clock.as_ref().clone()),
            secrets: Arc::new(self.secrets.as_ref().clone()),
            instance_key: self.instance_key.clone(),
        }
    }
}

impl TestForge {
    /// Stops the forge, to be copied together with a client.
    pub fn into_template(self, client: TestClient) -> ForgeTemplate {
        let Self { resources, forge, service, .. } = self;
        let client_parts = (client.id, client.token);
        drop((forge, service, client.service));
        resources.database.checkpoint();
        ForgeTemplate { resources, client: client_parts }
    }
}

impl ForgeTemplate {
    /// Starts a copy of the forge; returns it with a copy of the client.
    pub async fn copy(&self) -> (TestForge, TestClient) {
        let forge = TestForgeBuilder::default().start_on(self.resources.copy().await);
        let (id, token) = self.client.clone();
        let client = TestClient { service: forge.service.clone(), id, token };
        (forge, client)
    }
}

/// Creates the folder of the files of a forge; if they are to be in a bucket, a folder of the bucket.
fn files_folder() -> TempDir {
    match TestBucket::of_all_tests() {
        // A name that is a valid part of a key.
        Some(bucket) => tempfile::Builder::new().prefix("forge").tempdir_in(bucket.folder()).expect("a folder"),
        None => in_memory_folder(),
    }
}

/// Creates a folder in memory if possible: packs are synced to disk often, which tests do not need.
pub(crate) fn in_memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            fs::create_dir_all(&copy).expect("a folder");
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, &copy).expect("copied");
        }
    }
}
