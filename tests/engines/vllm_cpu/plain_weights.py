"""Keeps weights as they were loaded, so that a trainer can send new ones to an engine on a CPU.

vLLM packs two-dimensional weights for oneDNN and gives the original away; a weight that is loaded
afterwards would never be used. Loaded by vLLM as a plug-in in each of its processes.
"""


def keep() -> None:
    import torch
    from vllm.model_executor.layers import utils

    packed = utils.dispatch_cpu_unquantized_gemm

    def plain(layer: torch.nn.Module, remove_weight: bool) -> None:
        if layer.weight.ndim == 2:
            layer.cpu_linear = torch.nn.functional.linear
        else:
            packed(layer, remove_weight)

    utils.dispatch_cpu_unquantized_gemm = plain
