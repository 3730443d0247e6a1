"""Sums numbers. Gets the arguments alone and may wait for something: both as ragx's executor calls a function."""

import asyncio


async def total(payload):
    await asyncio.sleep(0)
    return {"sum": sum(payload["values"]), "count": len(payload["values"])}
