//! What a test's forge stands on, and how another one is made like it.

use std::{fs, path::Path, sync::Arc};

use forge::InstanceKey;
use tempfile::TempDir;

use crate::{
    Client, Setup, TestForge,
    clock::{TestClock, TestSecrets},
    database::TestDatabase,
};

/// Database, files, repositories, hour and secrets of one forge.
pub(crate) struct Ground {
    pub(crate) database: TestDatabase,
    pub(crate) files: TempDir,
    pub(crate) git: TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) secrets: Arc<TestSecrets>,
    pub(crate) instance_key: InstanceKey,
}

/// A forge that has stopped, of which copies can be made: what was put into it is put in once.
pub struct Kept {
    ground: Ground,
    /// Who calls it: number and token. A client would keep the forge alive.
    caller: (i64, Option<String>),
}

impl Ground {
    pub(crate) async fn fresh() -> Self {
        Self {
            database: TestDatabase::create().await,
            files: tempfile::tempdir().expect("a folder"),
            git: quick_folder(),
            clock: Arc::default(),
            secrets: Arc::default(),
            instance_key: InstanceKey::generate(&TestSecrets::default()),
        }
    }

    async fn copy(&self) -> Self {
        let (files, git) = (tempfile::tempdir().expect("a folder"), quick_folder());
        copy_folder(self.files.path(), files.path());
        copy_folder(self.git.path(), git.path());
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
    /// Stops, to be copied together with somebody who calls it.
    pub fn keep(self, client: Client) -> Kept {
        let Self { ground, forge, door, .. } = self;
        let caller = (client.id, client.token);
        drop((forge, door, client.door));
        ground.database.settle();
        Kept { ground, caller }
    }
}

impl Kept {
    /// Another forge like the one that was kept, and the same caller of it.
    pub async fn copy(&self) -> (TestForge, Client) {
        let forge = Setup::default().start_on(self.ground.copy().await);
        let (id, token) = self.caller.clone();
        let client = Client { door: forge.door.clone(), id, token };
        (forge, client)
    }
}

/// A folder in memory, where there is one: repositories are synced to disk all the time, and here nobody needs that.
fn quick_folder() -> TempDir {
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
