//! Checks at start that a bucket can be used, and says what is wrong with it.

use std::error::Error as StdError;

use object_store::{ObjectStore as _, ObjectStoreExt as _, PutOptions, PutPayload, path::Path as Location};
use sha2::{Digest as _, Sha256};
use tracing::{Dispatch, instrument::WithSubscriber as _};

use super::{
    Bucket, BucketError, attributes,
    error::{describe, error_code},
    hex, stored_checksum,
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

    /// Fails if the bucket does not answer; nothing is written. Nothing is logged either, because this is called every few seconds:
    /// the library would log each attempt.
    pub async fn ping(&self) -> Result<(), Error> {
        let (this, location) = (self.clone(), self.location(&format!("{FOLDER}/none"))?);
        let asked = async move { this.head(&location).await };
        self.run(asked.with_subscriber(Dispatch::none())).await.map(drop)
    }

    async fn try_all(&self, location: &Location) -> Result<(), BucketError> {
        let content: &[u8] = b"written by gable to check the store\n";
        let checksum = hex(&Sha256::digest(content));
        let (store, fail) = (&self.0.store, |what, error| self.unusable(what, &error));
        let broken = |reason: &str| BucketError::Unusable { name: self.name().to_owned(), reason: reason.to_owned() };
        let options = PutOptions { attributes: attributes(&checksum), ..PutOptions::default() };
        let written = store.put_opts(location, PutPayload::from_static(content), options).await;
        written.map_err(|error| fail("write", error))?;
        let found = store.get(location).await.map_err(|error| fail("read", error))?;
        let found_checksum = stored_checksum(&found);
        if found.bytes().await.map_err(|error| fail("read", error))? != content {
            return Err(broken("an object that was just written was read with other content"));
        }
        if found_checksum != Some(checksum) {
            return Err(broken(
                "it does not keep the metadata of objects (x-amz-meta-sha256), with which gable finds damaged ones",
            ));
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
