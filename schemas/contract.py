"""Contracts for readers in any language, built from the models: JSON Schema and AsyncAPI.

The texts are checked in under `schemas/generated/` and shipped with the wheel; `gpuvigil schema`
writes them anew, and a test fails where they differ from the models.
"""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from schemas.deadletter import DeadLetterHeaders
from schemas.topics import ALERTS, STATE_PREFIX, TOPICS, Topic, messages

CONTRACT_VERSION = "1.0.0"
"""Of the AsyncAPI document: grows when a topic or a message's version is added."""

KAFKA_BINDING = "0.5.0"

_Json = dict[str, Any]

_CLOUD_EVENTS = (
    "On Kafka an alert is a CloudEvents 1.0 event in binary mode: the value is the event's data, "
    "the header `content-type` is `application/json`, and the headers `ce_specversion`, `ce_id` "
    "(`incident_id/revision`), `ce_source` (the cluster), `ce_type` (`gpuvigil.alert.` and the "
    "status) and `ce_time` (event time) are its attributes."
)


def generated() -> dict[str, str]:
    """All files of `schemas/generated/`: name to text, the same for the same models."""
    return {**json_schemas(), "asyncapi.json": asyncapi()}


def json_schemas() -> dict[str, str]:
    """JSON Schema (2020-12) of each message and of a dead letter's headers, by file name."""
    models: list[type[BaseModel]] = [*messages(), DeadLetterHeaders]
    return {file_name(model): _text(_json_schema(model)) for model in models}


def asyncapi() -> str:
    """Give the AsyncAPI 3.0.0 document of all topics."""
    return _text(
        {
            "asyncapi": "3.0.0",
            "info": {
                "title": "gpuvigil",
                "version": CONTRACT_VERSION,
                "description": (
                    "GPU telemetry and pod events in, alerts and scaling signals out. Topic names "
                    "are given without the prefix that an installation may put in front. Readers "
                    "ignore fields they do not know; null means unknown, never 0."
                ),
                "license": {"name": "Apache-2.0"},
            },
            "defaultContentType": "application/json",
            "channels": {_channel_id(topic): _channel(topic) for topic in TOPICS},
            "operations": dict(pair for topic in TOPICS for pair in _operations(topic)),
            "components": {"messages": {_message_id(topic): _message(topic) for topic in TOPICS}},
        }
    )


def file_name(model: type[BaseModel]) -> str:
    """Name the generated file of a model: `<type>.v<version>.json`."""
    if model is DeadLetterHeaders:
        return "dead_letter_headers.json"
    fields = model.model_fields
    return f"{fields['type'].default}.v{fields['version'].default}.json"


def _json_schema(model: type[BaseModel]) -> _Json:
    schema = model.model_json_schema(mode="validation")
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": file_name(model), **schema}


def _text(document: _Json) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _channel_id(topic: Topic) -> str:
    return topic.name.rstrip(".")


def _message_id(topic: Topic) -> str:
    return topic.model.__name__ if topic.model is not None else "DeadLetter"


def _channel(topic: Topic) -> _Json:
    name = _message_id(topic)
    channel: _Json = {
        "address": topic.name,
        "description": f"{topic.purpose} Read by: {', '.join(topic.readers)}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "bindings": {"kafka": _channel_binding(topic)},
    }
    if topic.name == STATE_PREFIX:
        channel["address"] = f"{STATE_PREFIX}{{stage}}"
        channel["parameters"] = {"stage": {"description": "The stage whose state it is."}}
    return channel


def _channel_binding(topic: Topic) -> _Json:
    configuration: _Json = {"cleanup.policy": [topic.cleanup]}
    if topic.retention_ms is not None:
        configuration["retention.ms"] = topic.retention_ms
    return {
        "partitions": topic.partitions(),
        "topicConfiguration": configuration,
        "bindingVersion": KAFKA_BINDING,
    }


def _operations(topic: Topic) -> list[tuple[str, _Json]]:
    """Give what is done with a topic: it is written, and it is read."""
    channel = _channel_id(topic)
    reference = f"#/channels/{channel}"
    messages_of = [{"$ref": f"{reference}/messages/{_message_id(topic)}"}]
    return [
        (
            f"{action}.{channel}",
            {"action": action, "channel": {"$ref": reference}, "messages": messages_of},
        )
        for action in ("send", "receive")
    ]


def _message(topic: Topic) -> _Json:
    message: _Json = {
        "name": _message_id(topic),
        "summary": topic.purpose,
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": topic.key},
                "bindingVersion": KAFKA_BINDING,
            }
        },
    }
    if topic.model is None:
        message["contentType"] = "application/octet-stream"
        message["headers"] = {"$ref": f"./{file_name(DeadLetterHeaders)}"}
        message["payload"] = {"description": topic.purpose}
        return message
    message["contentType"] = "application/json"
    message["payload"] = {"$ref": f"./{file_name(topic.model)}"}
    if topic.name == ALERTS:
        message["description"] = _CLOUD_EVENTS
    return message
