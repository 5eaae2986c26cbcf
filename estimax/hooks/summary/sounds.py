"""Sound as the messages of an event file: WAV files of 16 bits."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = 32767  # of a 16-bit sample


def encoded_sounds(tag: str, sounds: NDArray[Any], rate: int) -> list[Any]:
    """Return messages of sounds [B, T, C] or [B, T], with TensorFlow's tags."""
    from tensorboardX.proto.summary_pb2 import Summary

    batch = sounds[..., None] if sounds.ndim == 2 else sounds
    if batch.ndim != 3 or not batch.size:
        raise ValueError(
            f"audio {tag!r}: expected [B, T] or [B, T, C], got shape {sounds.shape}."
        )
    values = []
    for index, sound in enumerate(batch):
        audio = Summary.Audio(
            sample_rate=rate,
            num_channels=sound.shape[1],
            length_frames=sound.shape[0],
            encoded_audio_string=wav(sound, rate),
            content_type="audio/wav",
        )
        full = f"{tag}/audio" if len(batch) == 1 else f"{tag}/audio/{index}"
        values.append(Summary.Value(tag=full, audio=audio))
    return values


def wav(sound: NDArray[Any], rate: int) -> bytes:
    """Return samples [T, C] within [-1, 1] as a WAV file; others are clipped.

    >>> wav(np.zeros((8, 1)), 8000)[:4]
    b'RIFF'
    """
    # NaN becomes silence, because it has no integer.
    finite = np.nan_to_num(sound.astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    samples = np.round(np.clip(finite, -1.0, 1.0) * _LARGEST).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(sound.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()
