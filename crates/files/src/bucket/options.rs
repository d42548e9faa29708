//! Where a bucket is and how it is accessed.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr as _,
};

use object_store::{
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path as Location,
};

use super::BucketError;

/// Where a bucket is and how it is accessed. Credentials are not shown.
#[derive(Clone)]
pub struct BucketOptions {
    bucket: String,
    prefix: Location,
    endpoint: Option<String>,
    settings: Vec<(AmazonS3ConfigKey, String)>,
}

impl BucketOptions {
    /// Reads a URL of the form `s3://bucket/prefix`, and variables such as `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_REGION`, `AWS_ENDPOINT_URL` and `AWS_VIRTUAL_HOSTED_STYLE_REQUEST`. Variables that do not concern S3 are
    /// ignored.
    pub fn new(url: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, BucketError> {
        let invalid = || BucketError::InvalidUrl(without_credentials(url));
        let rest = url.strip_prefix("s3://").ok_or_else(invalid)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err(invalid());
        }
        let prefix = Location::parse(prefix.trim_end_matches('/')).map_err(|_| invalid())?;
        let mut endpoint = None;
        let mut settings = Vec::new();
        for (name, value) in variables.into_iter().filter(|(name, value)| name.starts_with("AWS_") && !value.is_empty())
        {
            let known = match name.as_str() {
                "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_S3" | "AWS_ENDPOINT" => {
                    // The one for S3 has precedence.
                    if endpoint.is_none() || name == "AWS_ENDPOINT_URL_S3" {
                        endpoint = Some(value);
                    }
                    continue;
                }
                "AWS_BUCKET" | "AWS_BUCKET_NAME" => continue,
                name => AmazonS3ConfigKey::from_str(&name.to_ascii_lowercase()),
            };
            if let Ok(key) = known {
                settings.push((key, value));
            }
        }
        // It would be shown with the name of the store, and is not used to sign in.
        if endpoint.as_deref().is_some_and(has_user) {
            return Err(BucketError::InvalidOptions(
                "AWS_ENDPOINT_URL contains a user name or a password; remove it, and set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY"
                    .to_owned(),
            ));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix, endpoint, settings })
    }

    /// Returns what the keys of the instance start with.
    pub(super) fn prefix(&self) -> &Location {
        &self.prefix
    }

    /// Returns a builder with these options.
    pub(super) fn builder(&self) -> Result<AmazonS3Builder, BucketError> {
        let mut builder = AmazonS3Builder::new().with_bucket_name(&self.bucket).with_disable_bulk_delete(true);
        for (key, value) in &self.settings {
            builder = builder.with_config(*key, value);
        }
        if let Some(endpoint) = &self.endpoint {
            let is_plain = endpoint.starts_with("http://");
            if !is_plain && !endpoint.starts_with("https://") {
                return Err(BucketError::InvalidOptions(format!(
                    "AWS_ENDPOINT_URL is {endpoint:?}, but must start with https:// or http://"
                )));
            }
            // The operator has chosen HTTP by the URL, so no second setting is needed.
            builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
        }
        Ok(builder)
    }
}

impl Display for BucketOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        match &self.endpoint {
            Some(endpoint) => write!(f, " at {endpoint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "BucketOptions({self})")
    }
}

/// Returns whether a URL has a user name or a password.
fn has_user(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A password may contain characters that would have to be escaped, such as a slash.
    rest.contains('@')
}

/// Hides what may be a password in a URL that is not understood.
fn without_credentials(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => url.to_owned(),
    }
}
