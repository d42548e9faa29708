#!/bin/sh
# Creates the bucket of compose.yaml and a key for it, and writes the variables of the nodes to nodes.env.
set -eu
garage() { docker compose exec -T store /garage "$@"; }
node=$(garage node id --quiet | cut -d @ -f 1)
garage layout assign --zone local --capacity 10G "$node"
garage layout apply --version 1
garage bucket create gable
garage key create nodes > key.txt
garage bucket allow --read --write gable --key nodes
{
    echo "AWS_ENDPOINT_URL=http://store:3900"
    echo "AWS_REGION=garage"
    sed -n 's/^Key ID: */AWS_ACCESS_KEY_ID=/p; s/^Secret key: */AWS_SECRET_ACCESS_KEY=/p' key.txt
} > nodes.env
rm key.txt
chmod 600 nodes.env
echo "wrote nodes.env; restart the nodes: docker compose up -d"
