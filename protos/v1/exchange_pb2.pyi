from silosynth.protos.v1 import guard_pb2 as _guard_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromSilo(_message.Message):
    __slots__ = ("ticket", "hello", "answer", "head")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    hello: Hello
    answer: _guard_pb2.AnswerPart
    head: _guard_pb2.Head
    def __init__(self, ticket: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., answer: _Optional[_Union[_guard_pb2.AnswerPart, _Mapping]] = ..., head: _Optional[_Union[_guard_pb2.Head, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("run_id", "description", "budget")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    description: _guard_pb2.Description
    budget: _guard_pb2.BudgetStatus
    def __init__(self, run_id: _Optional[str] = ..., description: _Optional[_Union[_guard_pb2.Description, _Mapping]] = ..., budget: _Optional[_Union[_guard_pb2.BudgetStatus, _Mapping]] = ...) -> None: ...

class ToSilo(_message.Message):
    __slots__ = ("ask", "farewell", "witnessed", "released")
    ASK_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    WITNESSED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    ask: Ask
    farewell: Farewell
    witnessed: _guard_pb2.Head
    released: Released
    def __init__(self, ask: _Optional[_Union[Ask, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., witnessed: _Optional[_Union[_guard_pb2.Head, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ...) -> None: ...

class ArtifactRequest(_message.Message):
    __slots__ = ("run_id", "digest")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    digest: str
    def __init__(self, run_id: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("ticket", "query")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    query: bytes
    def __init__(self, ticket: _Optional[int] = ..., query: _Optional[bytes] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Farewell(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
