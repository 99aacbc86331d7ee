"""What the product says about orders by comment: short, from the ledger only, in the operator's language (GW-R-137)."""

# ruff: noqa: RUF001 - Chinese punctuation is meant

from __future__ import annotations

from dataclasses import dataclass

from stationmaster import clock
from stationmaster.gitea import codes, marker
from stationmaster.gitea.codes import Language
from stationmaster.gitea.model import Task
from stationmaster.gitea.texts import PREFIX, word

_STATES = {
    "received": ("is waiting to begin", "等待开始"),
    "queued": ("is waiting to begin", "等待开始"),
    "preparing": ("is being prepared", "正在准备"),
    "running": ("is being worked on", "正在处理"),
    "waiting_user": ("waits for an answer in this thread", "正在等待此处的回复"),
    "verifying_reply": ("is done; its answer is being checked", "已完成，正在确认回复"),
    "retry_wait": ("will be tried again", "将会重试"),
    "blocked_workspace": ("waits for an operator", "正在等待管理员处理"),
    "aborting": ("is being stopped", "正在停止"),
    "succeeded": ("is answered", "已回复"),
    "succeeded_with_rest_fallback": ("is answered", "已回复"),
    "failed": ("failed", "已失败"),
    "failed_reply": ("ran, but its answer is not proven", "已执行，但回复未能确认"),
    "cancelled": ("was cancelled", "已取消"),
    "aborted": ("was stopped", "已停止"),
}
_WAITS = {
    "paused": ("the product is paused by an operator", "管理员已暂停服务"),
    "repository": ("the repository is closed to new work by an operator", "管理员已停止此仓库的新任务"),
    "older": ("an earlier task of this thread comes first", "此处较早的任务优先"),
    "limit": ("room below a limit, or an operator who lets it go", "额度恢复或管理员放行"),
    "other": ("another task of this repository is being worked on", "此仓库的另一个任务正在处理"),
    "worker": ("a free worker", "空闲的工作进程"),
}
_RETRIES = {
    "none": ("There is nothing here to repeat.", "此处没有可以重试的任务。"),
    "busy": (
        "Nothing was repeated: the last task had not ended when you asked. Ask again when it has.",
        "未重试：您提出时上一个任务尚未结束，请在其结束后再试。",
    ),
    "gone": (
        "Nothing was repeated: the words of the last task are no longer kept. Please write it again.",
        "未重试：上一个任务的内容已不再保存，请重新填写。",
    ),
}


@dataclass(frozen=True, slots=True)
class Status:
    """What is told of a conversation: its newest task, what that waits for, and how many are still to be done."""

    task: Task
    waits_for: str
    open_tasks: int
    stops: bool = False


def status(key: str, told: Status | None, language: Language) -> str:
    """Says where the newest task stands, since when, and what it waits for."""
    if told is None:
        return _note(key, ("No task was ever given here.", "此处还没有任务。"), language)
    task = told.task
    en, zh = _STATES.get(task.state, _STATES["queued"])
    since = clock.iso(task.updated_at)
    lines = [f"任务{zh}，自 {since}。" if language == "zh" else f"The task {en}, since {since}."]
    if task.error_code and codes.known(task.error_code):
        reason = codes.text(task.error_code, language)
        lines.append(f"原因：{reason}。" if language == "zh" else f"Reason: {reason}.")
    if told.waits_for:
        en, zh = _WAITS.get(told.waits_for, (told.waits_for, told.waits_for))
        lines.append(f"等待：{zh}。" if language == "zh" else f"It waits for this: {en}.")
    if told.stops:
        lines.append("已收到停止请求。" if language == "zh" else "It stops as soon as it can.")
    if task.state == "retry_wait" and task.next_retry_at is not None:
        due = clock.iso(task.next_retry_at)
        lines.append(f"最早于 {due}。" if language == "zh" else f"Not before {due}.")
    if told.open_tasks > 1:
        count = told.open_tasks
        lines.append(f"此处共有 {count} 个未完成的任务。" if language == "zh" else f"{count} tasks are open here.")
    lines.append(f"`{task.id}`")
    return marker.attach(f"{PREFIX} {' '.join(lines)}", marker.receipt(key))


def help_text(key: str, bot: str, language: Language) -> str:
    """Says what may be asked of the bot."""
    at = f"@{word(bot)}"
    if language == "zh":
        lines = [
            f"{PREFIX} 在评论中提及 {word(bot)} 并写明要做的事。单独的词有特殊含义：",
            f"- `{at} 停止`：停止此处未完成的任务",
            f"- `{at} 重试`：再次执行上一个任务",
            f"- `{at} 状态`：查看任务状态",
            f"- `{at} 帮助`：显示此说明",
        ]
    else:
        lines = [
            f"{PREFIX} Mention {word(bot)} in a comment and say what is to be done. Alone, these words mean:",
            f"- `{at} stop`: stop what is not finished here",
            f"- `{at} retry`: do the last task again",
            f"- `{at} status`: tell where the task stands",
            f"- `{at} help`: show this",
        ]
    return marker.attach("\n".join(lines), marker.receipt(key))


def no_retry(key: str, why: str, language: Language) -> str:
    """Says why nothing was repeated."""
    return _note(key, _RETRIES[why], language)


def nothing_to_stop(key: str, language: Language) -> str:
    """Says that no task is open."""
    return _note(key, ("Nothing is under way here.", "此处没有进行中的任务。"), language)


def stopped(key: str, ended_before: int, cancelled: int, language: Language) -> str:
    """Says what a stop came to where no receipt of a task says it."""
    en, zh = [], []
    if cancelled:
        en.append("Stopped: nothing that had been asked here will be done.")
        zh.append("已停止：此前提出的任务不会再执行。")
    if ended_before:
        en.append("The task had come to its end before it could be stopped.")
        zh.append("任务在停止之前已经结束。")
    return _note(key, (" ".join(en), "".join(zh)), language)


def _note(key: str, words: tuple[str, str], language: Language) -> str:
    return marker.attach(f"{PREFIX} {words[1] if language == 'zh' else words[0]}", marker.receipt(key))
