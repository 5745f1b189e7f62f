# bash sft_deliberator.sh
deepspeed --module openrlhf.cli.train_sft \
  --model.model_name_or_path model \
  --data.dataset sft_deliberator/train.jsonl \
  --eval.dataset sft_deliberator/validation.jsonl \
  --data.input_key prompt \
  --data.output_key completion \
  --data.apply_chat_template \
  --data.max_len 16384 \
  --train.batch_size 8 \
  --train.micro_batch_size 1 \
  --ckpt.output_dir out/sft_deliberator "$@"
