"""What a worker answers over HTTP: metrics, and whether it is ready and alive."""

import os
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streams.engine.operators import STAGES

if TYPE_CHECKING:
    from streams.engine.engine import Engine
    from streams.engine.intake import Intake

SERVICE_UNAVAILABLE: Final = 503
STOP_SECONDS = 1.0


class WebError(Exception):
    """The address can't be served."""


def not_ready(engine: "Engine", intake: "Intake") -> str | None:
    """Why this worker does not do its part yet; None when it does.

    A member without a partition is ready: there are more workers than partitions.
    """
    if intake.generation < 0:
        return "the group has not been joined yet"
    missing = [
        f"{stage.name} {partition}"
        for stage in STAGES
        for partition in sorted(engine.assigned)
        if not engine.is_live(stage, partition)
    ]
    return f"taking over: {', '.join(missing)}" if missing else None


class WebServer:
    """`/metrics`, `/readyz`, `/livez` on one port; nothing can be changed through it."""

    def __init__(
        self,
        engine: "Engine",
        intake: "Intake",
        registry: CollectorRegistry,
        *,
        host: str,
        port: int,
    ) -> None:
        """`port` 0 takes any free one; `port` tells it after `start`."""
        self.port = port
        self._engine = engine
        self._intake = intake
        self._registry = registry
        self._host = host
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/livez", self._alive)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self) -> None:
        """Listen.  Raises WebError for an address that is taken or not ours."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, shutdown_timeout=STOP_SECONDS)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise WebError(
                f"cannot serve metrics on {self._host}:{self.port} "
                f"({os.strerror(error.errno or 0)}); choose another --web-port"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _ready(self, _: web.Request) -> web.Response:
        reason = not_ready(self._engine, self._intake)
        if reason is not None:
            return web.Response(text=f"{reason}\n", status=SERVICE_UNAVAILABLE)
        return web.Response(text="ready\n")

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")
