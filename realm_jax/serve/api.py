"""The JSON API and the page of a run, as an ASGI application."""

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
from realm_jax.serve.live_run import LiveRun

PAGE = Path(__file__).parent / "page"

log = logging.getLogger(__name__)
router = APIRouter(
    prefix="/api", responses={status: {"model": schema.Refused} for status in (400, 422)}
)


def _served(request: Request) -> LiveRun:
    return request.app.state.run


Run = Annotated[LiveRun, Depends(_served)]


@router.get("/health")
def health(run: Run) -> schema.Health:
    """What is served, once it answers."""
    return schema.Health(status="ok", **run.about())


@router.post("/ask")
def ask(body: schema.Ask, run: Run) -> schema.Answered:
    """Answers a question with its evidence."""
    return schema.Answered(**run.ask(body.question, body.k))


@router.post("/batch")
def batch(body: schema.Batch, run: Run) -> schema.AllAnswered:
    """Answers many questions in one pass."""
    answers = run.ask_all(body.questions, body.k)
    return schema.AllAnswered(answers=[schema.Answered(**answer) for answer in answers])


@router.post("/fill")
def fill(body: schema.Fill, run: Run) -> schema.Filled:
    """Fills the blank of a sentence, with and without retrieval."""
    return schema.Filled(**run.fill(body.text, body.answer))


@router.get("/passages")
def changes(run: Run) -> schema.Changes:
    """Passages that were added, edited or removed since the start."""
    return schema.Changes(**run.changes())


@router.post("/passages", status_code=201)
def add(body: schema.NewPassage, run: Run) -> schema.Changed:
    """Adds a passage; the next answer may rest on it. Kept in memory only."""
    return schema.Changed(**run.add(body.title, body.text))


@router.put("/passages")
def edit(body: schema.EditedPassage, run: Run) -> schema.Changed:
    """Replaces a passage; a removed one comes back."""
    return schema.Changed(**run.edit(body.id, body.title, body.text))


@router.delete("/passages")
def remove(
    run: Run,
    id: Annotated[int | None, Query(ge=0)] = None,
    body: Annotated[schema.PassageChoice | None, Body()] = None,
) -> schema.Changed:
    """Takes a passage out of what can be retrieved; its id as query parameter or in the body."""
    chosen = [i for i in (id, None if body is None else body.id) if i is not None]
    if len(chosen) != 1:
        raise InputError("which passage?", expected="one id", found=len(chosen))
    return schema.Changed(**run.remove(chosen[0]))


@router.delete("/edits")
def undo(run: Run, id: Annotated[int | None, Query(ge=0)] = None) -> schema.Changed:
    """Takes back what was done to one passage, or without an id everything."""
    return schema.Changed(**run.undo(id))


def make_app(run: LiveRun, hosts: Iterable[str] = ()) -> FastAPI:
    """The application that serves `run`; `hosts` as in `Guard`."""
    app = FastAPIOffline(
        title="realm",
        version=__version__,
        description="Questions answered and blanks filled with evidence; passages changed live.",
        static_url="/docs/static",
    )
    app.state.run = run
    app.include_router(router)
    app.add_api_route("/", _page, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.add_middleware(Guard, hosts=hosts)
    app.add_exception_handler(RealmError, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _no_such_page)
    return app


def _page() -> FileResponse:
    return FileResponse(PAGE / "index.html")


def _refused(_: Request, error: Any) -> JSONResponse:
    if isinstance(error, DamageError):
        log.error("%s", error)
    parts = ("problem", "where", "expected", "found", "fix")
    told = {part: getattr(error, part) for part in parts}
    content = {part: str(value) for part, value in told.items() if value is not None}
    return JSONResponse({"error": content}, 500 if isinstance(error, DamageError) else 400)


def _not_understood(_: Request, error: Any) -> JSONResponse:
    """The first thing wrong with the JSON; what was sent is not sent back."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    problem = {"problem": "the request cannot be understood", "where": where}
    return JSONResponse({"error": {**problem, "expected": first["msg"]}}, 422)


def _no_such_page(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": {"problem": error.detail}}, error.status_code, error.headers)
