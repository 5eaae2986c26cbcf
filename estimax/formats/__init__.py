"""Formats of other programs: TFRecord, protocol buffers, safetensors, SavedModel.

    for block in records.iter_record_blocks(path): ...

Each module reads or writes one format and knows nothing of models.
"""
