# python sft_deliberator.py
import asyncio

from tinker_cookbook import model_info
from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

MODEL = "model"
COMMON = ChatDatasetBuilderCommonConfig(
    model_name_for_tokenizer=MODEL,
    renderer_name=model_info.get_recommended_renderer_name(MODEL),
    max_length=16384,
    batch_size=8,
    train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE,
)
CONFIG = train.Config(
    log_path="out/sft_deliberator",
    model_name=MODEL,
    recipe_name="heavydistill_sft",
    renderer_name=COMMON.renderer_name,
    dataset_builder=FromConversationFileBuilder(
        common_config=COMMON, file_path="sft_deliberator/train.jsonl"
    ),
)

if __name__ == "__main__":
    asyncio.run(train.main(CONFIG))
