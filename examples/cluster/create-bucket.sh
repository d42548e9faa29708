#!/bin/sh
# Starts the store of compose.yaml, creates the bucket and a key for it, and writes the variables of the nodes to nodes.env.
set -eu
# What is written contains a secret.
umask 077
cd "$(dirname "$0")"
garage() { docker compose exec -T store /garage "$@"; }
docker compose up --detach store
attempts=30
until garage status > /dev/null 2>&1; do
    attempts=$((attempts - 1))
    [ "$attempts" -gt 0 ] || { echo "the store does not start; see: docker compose logs store" >&2; exit 1; }
    sleep 1
done
node=$(garage node id --quiet | cut -d @ -f 1)
garage layout assign --zone local --capacity 10G "$node"
garage layout apply --version 1
garage bucket create gable
key=$(garage key create nodes)
garage bucket allow --read --write gable --key nodes
{
    echo "AWS_ENDPOINT_URL=http://store:3900"
    echo "AWS_REGION=garage"
    echo "$key" | sed -n 's/^Key ID: */AWS_ACCESS_KEY_ID=/p; s/^Secret key: */AWS_SECRET_ACCESS_KEY=/p'
} > nodes.env
echo "wrote nodes.env; start all services: docker compose up --detach"
