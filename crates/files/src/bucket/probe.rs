//! Checks at start that a bucket can be used, and says what is wrong with it.

use std::error::Error as StdError;

use object_store::{ObjectStore as _, ObjectStoreExt as _, PutPayload, path::Path as Location};

use super::{
    Bucket, BucketError,
    error::{describe, error_code},
};
use crate::Error;

/// The folder of the objects that the check writes.
const FOLDER: &str = "probe";

impl Bucket {
    /// Writes an object, reads it, lists it and removes it; returns what is wrong if one of these fails. `id` keeps the
    /// objects of concurrent checks apart. Blocking.
    pub fn probe(&self, id: &str) -> Result<(), Error> {
        let this = self.clone();
        let location = self.location(&format!("{FOLDER}/{id}"))?;
        self.wait(async move { Ok(this.try_all(&location).await?) })
    }

    /// Fails if the bucket does not answer; nothing is written.
    pub async fn ping(&self) -> Result<(), Error> {
        let (this, location) = (self.clone(), self.location(&format!("{FOLDER}/none"))?);
        self.run(async move { this.head(&location).await }).await.map(drop)
    }

    async fn try_all(&self, location: &Location) -> Result<(), BucketError> {
        let content = PutPayload::from_static(b"written by gable to check the store\n");
        let (store, fail) = (&self.0.store, |what, error| self.unusable(what, &error));
        store.put(location, content.clone()).await.map_err(|error| fail("write", error))?;
        let read = async { store.get(location).await?.bytes().await };
        let read = read.await.map_err(|error| fail("read", error))?;
        if read != bytes::Bytes::from(content) {
            return Err(BucketError::Unusable {
                name: self.name().to_owned(),
                reason: "an object that was just written was read with other content".to_owned(),
            });
        }
        store.list_with_delimiter(Some(&self.0.prefix)).await.map_err(|error| fail("list", error))?;
        store.delete(location).await.map_err(|error| fail("remove", error))
    }

    /// Explains an error of the check.
    fn unusable(&self, what: &str, error: &object_store::Error) -> BucketError {
        let text = error.to_string();
        let cause = describe(error);
        let reason = match error_code(&text) {
            Some("NoSuchBucket") => "the bucket does not exist; create it, or correct the name in `store`".to_owned(),
            Some("InvalidAccessKeyId") => "the access key is unknown to the store; check AWS_ACCESS_KEY_ID".to_owned(),
            Some("SignatureDoesNotMatch") => {
                "the store refuses the signature; check AWS_SECRET_ACCESS_KEY and AWS_REGION".to_owned()
            }
            Some("RequestTimeTooSkewed") => {
                "the clock of this machine differs from that of the store; set it right".to_owned()
            }
            Some("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException") => {
                format!("the bucket is in another region ({cause}); set AWS_REGION")
            }
            Some("AccessDenied") => format!(
                "the credentials do not permit to {what} objects ({cause}); gable needs to write, read, list and remove \
                 them"
            ),
            _ if has_source(error, |source| source.to_string().contains("169.254.")) => {
                "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned()
            }
            _ => format!("cannot {what} an object: {cause}"),
        };
        BucketError::Unusable { name: self.name().to_owned(), reason }
    }
}

/// Returns whether an error or one of its causes satisfies a condition.
fn has_source(error: &object_store::Error, is_wanted: impl Fn(&dyn StdError) -> bool) -> bool {
    let first: &dyn StdError = error;
    std::iter::successors(Some(first), |error| (*error).source()).any(is_wanted)
}
