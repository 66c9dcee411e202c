from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListReleases(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseId(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class CatalogEntry(_message.Message):
    __slots__ = ("name", "version", "parent", "created", "sha256", "size", "recipe", "records", "epsilon", "delta", "accuracy", "withdrawn")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    parent: int
    created: str
    sha256: str
    size: int
    recipe: str
    records: int
    epsilon: float
    delta: float
    accuracy: float
    withdrawn: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., parent: _Optional[int] = ..., created: _Optional[str] = ..., sha256: _Optional[str] = ..., size: _Optional[int] = ..., recipe: _Optional[str] = ..., records: _Optional[int] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., accuracy: _Optional[float] = ..., withdrawn: _Optional[str] = ...) -> None: ...

class ReleaseDetails(_message.Message):
    __slots__ = ("entry", "signature", "manifest_size", "readme", "privacy_card")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SIZE_FIELD_NUMBER: _ClassVar[int]
    README_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_CARD_FIELD_NUMBER: _ClassVar[int]
    entry: CatalogEntry
    signature: bytes
    manifest_size: int
    readme: str
    privacy_card: str
    def __init__(self, entry: _Optional[_Union[CatalogEntry, _Mapping]] = ..., signature: _Optional[bytes] = ..., manifest_size: _Optional[int] = ..., readme: _Optional[str] = ..., privacy_card: _Optional[str] = ...) -> None: ...

class FetchRelease(_message.Message):
    __slots__ = ("release", "sha256", "offset")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    release: ReleaseId
    sha256: str
    offset: int
    def __init__(self, release: _Optional[_Union[ReleaseId, _Mapping]] = ..., sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReleaseChunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
