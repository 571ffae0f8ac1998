"""ASGI application that serves the JSON API and the web page of a run."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from realm_jax import __version__
from realm_jax.errors import DamageError, InputError, RealmError
from realm_jax.serve import schema
from realm_jax.serve.guard import Guard
from realm_jax.serve.live_run import LiveRun, ReadOnlyError

PAGE = Path(__file__).parent / "page"

log = logging.getLogger(__name__)
router = APIRouter(
    prefix="/api", responses={status: {"model": schema.Refused} for status in (400, 422)}
)


def _run_of(request: Request) -> LiveRun:
    return request.app.state.run


Run = Annotated[LiveRun, Depends(_run_of)]


@router.get("/health")
def health(run: Run) -> schema.Health:
    """Describes the run; the server is ready when this replies."""
    return schema.Health(status="ok", **run.about())


@router.post("/ask")
def ask(body: schema.Ask, run: Run) -> schema.Answered:
    """Answers a question and returns the passages that it read."""
    return schema.Answered(**run.ask(body.question, _count(body.k, run), body.retriever))


@router.post("/batch")
def batch(body: schema.Batch, run: Run) -> schema.AllAnswered:
    """Answers many questions in one batch."""
    answers = run.ask_all(body.questions, _count(body.k, run), body.retriever)
    return schema.AllAnswered(answers=[schema.Answered(**answer) for answer in answers])


def _count(k: int | None, run: LiveRun) -> int | None:
    """`k` of a request; raises an InputError if it is above the limit of the run."""
    if k is not None and k > run.most_passages:
        raise InputError(
            "too many passages to read",
            where="body.k",
            expected=f"at most {run.most_passages}",
            found=k,
        )
    return k


@router.post("/fill")
def fill(body: schema.Fill, run: Run) -> schema.Filled:
    """Fills the blank of a sentence, with and without retrieval."""
    return schema.Filled(**run.fill(body.text, body.answer, body.retriever))


@router.get("/examples")
def examples(run: Run) -> schema.Examples:
    """Lists inputs to try: questions of the run, or sentences with one `[MASK]`."""
    return schema.Examples(examples=run.examples)


@router.get("/passages")
def changes(run: Run) -> schema.Changes:
    """Lists the passages that were added, edited or removed since the server started."""
    return schema.Changes(**run.changes())


@router.post("/passages", status_code=201)
def add(body: schema.NewPassage, run: Run) -> schema.Changed:
    """Adds a passage to the corpus; it can be retrieved from the next question on."""
    return schema.Changed(**run.add(body.title, body.text))


@router.put("/passages")
def edit(body: schema.EditedPassage, run: Run) -> schema.Changed:
    """Replaces the text of a passage; restores it if it was removed."""
    return schema.Changed(**run.edit(body.id, body.title, body.text))


@router.delete("/passages")
def remove(
    run: Run,
    id: Annotated[int | None, Query(ge=0)] = None,
    body: Annotated[schema.PassageChoice | None, Body()] = None,
) -> schema.Changed:
    """Removes a passage from the corpus; the id is a query parameter or in the body."""
    chosen = _ids(id, body)
    if len(chosen) != 1:
        raise InputError(
            "not exactly one passage id", expected="one id, in the query or the body", found=chosen
        )
    return schema.Changed(**run.remove(chosen[0]))


@router.delete("/edits")
def undo(
    request: Request,
    run: Run,
    id: Annotated[int | None, Query(ge=0)] = None,
    body: Annotated[schema.PassageChoice | None, Body()] = None,
) -> schema.Changed:
    """Undoes the changes to one passage since the server started; without an id, all changes."""
    chosen, unknown = _ids(id, body), request.query_params.keys() - {"id"}
    if len(chosen) > 1 or unknown:  # a mistyped id must not undo everything
        raise InputError(
            "not one passage id",
            expected="one id, in the query or the body; or none to undo all changes",
            found=chosen or sorted(unknown),
        )
    return schema.Changed(**run.undo(*chosen))


def _ids(id: int | None, body: schema.PassageChoice | None) -> list[int]:
    return [i for i in (id, None if body is None else body.id) if i is not None]


def make_app(run: LiveRun, hosts: Iterable[str]) -> FastAPI:
    """Builds the application.

    Args:
      run: the run to serve.
      hosts: names that the Host header may have; see `Guard`.
    """
    app = FastAPIOffline(
        title="realm",
        version=__version__,
        description="Answers questions and fills blanks with evidence; passages can be changed.",
        static_url="/docs/static",
    )
    app.state.run = run
    app.include_router(router)
    app.add_api_route("/", _page, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.add_middleware(Guard, hosts=hosts)
    app.add_exception_handler(RealmError, _refused)
    app.add_exception_handler(OSError, _os_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    return app


def _page() -> FileResponse:
    return FileResponse(PAGE / "index.html")


def _refused(_: Request, error: Any) -> JSONResponse:
    if isinstance(error, DamageError):
        log.error("%s", error)
    parts = ("problem", "where", "expected", "found", "fix")
    values = {part: getattr(error, part) for part in parts}
    content = {part: str(value) for part, value in values.items() if value is not None}
    return JSONResponse({"error": content}, _status(error))


def _os_error(_: Request, error: Any) -> JSONResponse:
    log.error("%s", error)
    return JSONResponse({"error": {"problem": error.strerror or str(error)}}, 500)


def _status(error: Any) -> int:
    if isinstance(error, ReadOnlyError):
        return 403
    return 500 if isinstance(error, DamageError) else 400


def _invalid_request(_: Request, error: Any) -> JSONResponse:
    """Reports the first error in the JSON; never echoes the request."""
    first = error.errors()[0]
    where, expected = ".".join(str(part) for part in first["loc"]), first["msg"]
    if isinstance(first["input"], bytes):  # not read as JSON
        where, expected = "header Content-Type", "application/json"
    elif first["type"] == "json_invalid":
        where, expected = f"body, character {first['loc'][1]}", f"JSON: {first['ctx']['error']}"
    problem = {"problem": "the request cannot be understood", "where": where}
    return JSONResponse({"error": {**problem, "expected": expected}}, 422)


def _http_error(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": {"problem": error.detail}}, error.status_code, error.headers)
