"""A connector of vLLM's that moves no KV cache: which tokens another engine computed is written into its plan."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class Connector(KVConnectorBase_V1):
    """Claims for each request the tokens in ``plan``, once: how many, and whether they arrive later."""

    plan: ClassVar[dict[str, tuple[int, bool]]] = {}
    sending: ClassVar[set[str]] = set()  # requests whose blocks are still being read when they end

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        tokens, later = self.plan.get(request.request_id, (0, False))
        if request.num_preemptions or tokens <= num_computed_tokens:
            return 0, False
        return tokens - num_computed_tokens, later

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing is kept."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return request.request_id in self.sending, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """No worker runs."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No worker runs."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """No worker runs."""

    def wait_for_save(self) -> None:
        """No worker runs."""


def settings(role: str = "kv_consumer", **more: Any) -> dict[str, Any]:
    """Fields of a ``KVTransferConfig`` with this connector."""
    return {"kv_connector": "Connector", "kv_connector_module_path": __name__, "kv_role": role, **more}
