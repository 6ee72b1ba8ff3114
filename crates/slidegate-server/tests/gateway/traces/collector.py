"""Receives OTLP over gRPC at ADDRESS, with TLS if CERTIFICATE and KEY name PEM files.

Appends each span to the file SPANS, as a line of JSON, and each call with its metadata to the file CALLS, as it came.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def plain(attributes):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def line(resource, scope, span):
    return {
        "resource": plain(resource.attributes),
        "scope": scope.name,
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "state": span.trace_state,
        "began_ns": span.start_time_unix_nano,
        "ended_ns": span.end_time_unix_nano,
        "attributes": plain(span.attributes),
        "events": [[event.name, event.time_unix_nano] for event in span.events],
        "status": span.status.code,
    }


class Collector(service.TraceServiceServicer):
    def Export(self, request, context):
        with open(os.environ["CALLS"], "ab") as calls:
            metadata = repr(context.invocation_metadata()).encode()
            calls.write(metadata + request.SerializeToString())
        with open(os.environ["SPANS"], "a") as spans:
            for of_resource in request.resource_spans:
                for of_scope in of_resource.scope_spans:
                    for span in of_scope.spans:
                        print(json.dumps(line(of_resource.resource, of_scope.scope, span)), file=spans)
        return messages.ExportTraceServiceResponse()


server = grpc.server(ThreadPoolExecutor(2))
service.add_TraceServiceServicer_to_server(Collector(), server)
address = os.environ["ADDRESS"]
if "CERTIFICATE" in os.environ:
    pair = [open(os.environ[name], "rb").read() for name in ("KEY", "CERTIFICATE")]
    bound = server.add_secure_port(address, grpc.ssl_server_credentials([tuple(pair)]))
else:
    bound = server.add_insecure_port(address)
if not bound:
    sys.exit(f"cannot listen on {address}")
server.start()
server.wait_for_termination()
