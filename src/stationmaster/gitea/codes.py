"""The one registry of error and reason codes of this slice, with their words in English and Chinese (GW-R-213).

A code is a plain lower-case string that never changes its meaning; a code that is not here is never emitted.
"""

# ruff: noqa: RUF001 - Chinese punctuation is meant

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stationmaster.errors import Bug

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Code:
    """One code: its words, and whether a task that met it may spend its one retry (GW-R-107)."""

    id: str
    en: str
    zh: str
    retryable: bool = False


_registry: dict[str, Code] = {}


def _code(name: str, en: str, zh: str, *, retryable: bool = False) -> str:
    if name in _registry:
        raise Bug(f"BUG: code {name!r} is declared twice.")
    _registry[name] = Code(name, en, zh, retryable)
    return name


# Ingress: the answer to a delivery (sections 4 and 15).
INVALID_SIGNATURE: Final = _code("invalid_signature", "the signature does not match", "签名不匹配")
OLD_SECRET: Final = _code("old_secret", "the delivery is signed with the old secret", "该投递使用旧密钥签名")
DUPLICATE_DELIVERY: Final = _code("duplicate_delivery", "this delivery was already handled", "该投递已处理")
INVALID_PAYLOAD: Final = _code("invalid_payload", "the delivery cannot be understood", "无法解析该投递")
FOREIGN_HOST: Final = _code(
    "foreign_host", "the repository is not on the configured forge", "仓库不在已配置的 Gitea 实例上"
)
PAYLOAD_TOO_LARGE: Final = _code("payload_too_large", "the delivery is larger than allowed", "投递内容超过大小上限")
DELIVERY_MISMATCH: Final = _code(
    "delivery_mismatch", "a known delivery id came with another payload", "已知的投递编号带有不同的内容"
)
REPOSITORY_DISABLED: Final = _code("repository_disabled", "the repository is disabled", "仓库已停用")
STORE_UNAVAILABLE: Final = _code("store_unavailable", "the store is unavailable", "存储不可用")

# Ingress: why a valid delivery starts nothing (GW-R-054 … GW-R-058).
NOT_A_COMMENT: Final = _code("not_a_comment", "the event is not a comment", "该事件不是评论")
REVIEW_EVENT: Final = _code("review_event", "the review does not say where it stands", "评审事件缺少位置信息")
TEST_DELIVERY: Final = _code("test_delivery", "test delivery received", "已收到测试投递")
COMMENT_EDITED: Final = _code("comment_edited", "edited comments do not start tasks", "编辑评论不会触发任务")
TRIGGER_OFF: Final = _code("trigger_off", "this kind of mention starts nothing here", "此类提及不会触发任务")
COMMENT_DELETED: Final = _code("comment_deleted", "deleted comments do not start tasks", "删除评论不会触发任务")
ACTION_NOT_CREATED: Final = _code("action_not_created", "only new comments start tasks", "只有新评论才会触发任务")
DRAFT_REVIEW_COMMENT: Final = _code(
    "draft_review_comment", "the comment belongs to a review that was not submitted", "该评论属于尚未提交的评审"
)
BOT_SELF_COMMENT: Final = _code("bot_self_comment", "the bot's own comment", "机器人自己的评论")
BOT_COMMENT: Final = _code("bot_comment", "comments of bots do not start tasks", "其他机器人的评论不会触发任务")
AUTHOR_UNKNOWN: Final = _code("author_unknown", "the comment's author no longer exists", "评论作者已不存在")
NO_MENTION: Final = _code("no_mention", "the bot is not mentioned", "未提及机器人")
EMPTY_INSTRUCTION: Final = _code("empty_instruction", "the mention comes without an instruction", "提及中没有指令内容")

# Who may ask.
AUTHOR_NOT_ALLOWED: Final = _code(
    "author_not_allowed", "the author may not give tasks in this repository", "作者无权在此仓库下达任务"
)
AUTHOR_NOT_VERIFIABLE: Final = _code(
    "author_not_verifiable",
    "the author's permission cannot be read; give the bot administrator rights on the repository",
    "无法读取作者的权限；请授予机器人仓库管理员权限",
)

# Workspace and git (GW-R-128, GW-R-131).
GIT_AUTH_FAILED: Final = _code("git_auth_failed", "git was refused by the forge", "git 认证失败", retryable=True)
GIT_NETWORK_FAILED: Final = _code("git_network_failed", "git could not reach the forge", "git 网络失败", retryable=True)
GIT_REPO_MISSING: Final = _code("git_repo_missing", "the repository cannot be found", "找不到仓库")
GIT_LOCKED: Final = _code("git_locked", "another git process holds the repository", "仓库正被其他 git 进程占用")
GIT_FAILED: Final = _code("git_failed", "a git command failed", "git 命令失败")
WORKSPACE_PATH_INVALID: Final = _code("workspace_path_invalid", "the workspace path is not allowed", "工作区路径不允许")
WORKSPACE_DIRTY: Final = _code("workspace_dirty", "the workspace holds changes that are not ours", "工作区有未知改动")
WORKSPACE_CONFLICT: Final = _code(
    "workspace_conflict", "the workspace is in a merge or rebase", "工作区处于合并或变基中"
)
WORKSPACE_LOCKED: Final = _code("workspace_locked", "the workspace has a git lock", "工作区存在 git 锁")
WORKSPACE_MISSING: Final = _code("workspace_missing", "the workspace is not there", "工作区不存在")
WORKSPACE_SAVE_FAILED: Final = _code(
    "workspace_save_failed", "the work could not be saved", "无法保存工作成果", retryable=True
)

WORKSPACE_BRANCH_BUSY: Final = _code(
    "workspace_branch_busy", "the task branch is checked out elsewhere", "任务分支已在其他工作区检出"
)
GIT_REF_MISSING: Final = _code("git_ref_missing", "a branch or commit cannot be found", "找不到分支或提交")
GIT_TIMEOUT: Final = _code("git_timeout", "git did not finish in time", "git 操作超时", retryable=True)

# Leases, restart, limits.
LEASE_EXPIRED: Final = _code("lease_expired", "the repository lease expired", "仓库租约已过期", retryable=True)
LEASE_LOST: Final = _code("lease_lost", "the repository lease was lost", "仓库租约已丢失", retryable=True)
ENDED_BEFORE_RESTORE: Final = _code(
    "ended_before_restore",
    "the task had ended before the ledger was restored from a backup",
    "任务在账本从备份恢复之前已经结束",
)
INTERRUPTED_BY_RESTART: Final = _code(
    "interrupted_by_restart", "the run was interrupted by a restart", "运行被重启中断", retryable=True
)
RESOURCE_GONE: Final = _code("resource_gone", "the issue or pull request is gone", "议题或合并请求已不存在")
PULL_NOT_SUPPORTED: Final = _code(
    "pull_not_supported", "pull requests are not supported here yet", "此处尚不支持合并请求"
)

# Agent.
APP_SERVER_TIMEOUT: Final = _code(
    "app_server_timeout", "the agent did not answer in time", "智能体超时", retryable=True
)
APP_SERVER_UNREACHABLE: Final = _code(
    "app_server_unreachable", "the agent could not be reached", "无法连接智能体", retryable=True
)
SESSION_UNRECOVERABLE: Final = _code("session_unrecoverable", "the conversation cannot be resumed", "会话无法恢复")
TOOLS_CHANGED: Final = _code("tools_changed", "the conversation was begun with other tools", "会话创建时的工具集已变更")
# Whether a failed turn may be tried again is a fact of its event, not of this code (GW-R-212).
TURN_FAILED: Final = _code("turn_failed", "the agent's turn failed", "智能体执行失败")
TURN_INTERRUPTED: Final = _code(
    "turn_interrupted", "the agent's turn was interrupted", "智能体执行被中断", retryable=True
)
TURN_DEADLINE: Final = _code("turn_deadline", "the agent used up its time", "智能体执行超过时限")
CODEX_NOT_LOGGED_IN: Final = _code("codex_not_logged_in", "the agent is not logged in", "智能体未登录")
APP_SERVER_REJECTED: Final = _code("app_server_rejected", "the agent refused the request", "智能体拒绝了请求")
SESSION_BUSY: Final = _code("session_busy", "the conversation is open elsewhere", "会话正被占用", retryable=True)
AGENT_PROCESS_ALIVE: Final = _code(
    "agent_process_alive", "a process of the agent does not end", "智能体进程未能结束", retryable=True
)
RUN_LOG_UNWRITABLE: Final = _code("run_log_unwritable", "the run's log cannot be written", "无法写入运行日志")
INVALID_CONFIGURATION: Final = _code("invalid_configuration", "the configuration is wrong", "配置有误")
CAPABILITY_DOWNGRADE: Final = _code("capability_downgrade", "the agent lacks a capability", "智能体缺少某项能力")
MCP_COMMAND_MISSING: Final = _code("mcp_command_missing", "gitea-mcp is not installed", "未安装 gitea-mcp")
MCP_SPAWN_FAILED: Final = _code("mcp_spawn_failed", "gitea-mcp ended at its start", "gitea-mcp 启动后立即退出")
MCP_HANDSHAKE_FAILED: Final = _code("mcp_handshake_failed", "gitea-mcp did not shake hands", "gitea-mcp 握手失败")
MCP_CALL_FAILED: Final = _code("mcp_call_failed", "a call of gitea-mcp failed", "gitea-mcp 调用失败")

# Reply (section 12).
MCP_REPLY_MISSING: Final = _code("mcp_reply_missing", "the answer did not appear", "回复未出现", retryable=True)
REPLY_STATUS_UNKNOWN: Final = _code(
    "reply_status_unknown", "it is unknown whether the answer was posted", "无法确认回复是否已发布"
)
REPLY_TEXT_MISSING: Final = _code("reply_text_missing", "the agent gave no answer", "智能体没有给出回复")
REST_FALLBACK_FAILED: Final = _code("rest_fallback_failed", "the answer could not be posted", "回复发布失败")
REST_FALLBACK_UNCONFIRMED: Final = _code(
    "rest_fallback_unconfirmed", "the posted answer could not be read back", "已发布的回复无法读回确认"
)

# Publishing: why work was saved but not pushed or proposed.
PUSH_OFF: Final = _code("push_off", "publishing is off", "未启用发布")
PUSH_FORBIDDEN: Final = _code("push_forbidden", "the bot may not push to this repository", "机器人无权推送到此仓库")
PUSH_PROTECTED: Final = _code("push_protected", "the branch is protected", "分支受保护")
PUSH_HOOK_REFUSED: Final = _code("push_hook_refused", "a hook of the forge refused the push", "推送被服务器钩子拒绝")
PUSH_NOT_FAST_FORWARD: Final = _code(
    "push_not_fast_forward", "the branch on the forge went another way", "远端分支已分叉"
)
PUSH_UNKNOWN: Final = _code("push_unknown", "it is unknown whether the push arrived", "无法确认推送是否成功")
PUSH_REFUSED: Final = _code("push_refused", "the forge refused the push", "推送被拒绝")
FORK_NOT_TRUSTED: Final = _code(
    "fork_not_trusted",
    "the code is a fork's, and whoever asked may not write here",
    "代码来自派生仓库，而提出者没有此仓库的写入权限",
)
FORK_READ_ONLY: Final = _code(
    "fork_read_only", "a run on a fork's code changes nothing here", "针对派生仓库代码的执行不作任何更改"
)
PULLS_OFF: Final = _code("pulls_off", "pull requests are off in this repository", "此仓库未启用合并请求")
PULL_EXISTS: Final = _code("pull_exists", "such a pull request already exists", "该合并请求已存在")
PULL_REFUSED: Final = _code("pull_refused", "the forge refused the pull request", "创建合并请求被拒绝")
PULL_UNKNOWN: Final = _code(
    "pull_unknown", "it is unknown whether the pull request was opened", "无法确认合并请求是否已创建"
)

# The forge's REST interface.
FORGE_UNREACHABLE: Final = _code(
    "forge_unreachable", "the forge could not be reached", "无法连接 Gitea", retryable=True
)
FORGE_TIMEOUT: Final = _code("forge_timeout", "the forge did not answer in time", "Gitea 响应超时", retryable=True)
FORGE_ERROR: Final = _code("forge_error", "the forge answered with an error", "Gitea 返回错误", retryable=True)
FORGE_BAD_ANSWER: Final = _code(
    "forge_bad_answer", "the forge's answer cannot be understood", "无法解析 Gitea 的响应", retryable=True
)
FORGE_PARTIAL: Final = _code(
    "forge_partial", "the forge's list is not complete", "Gitea 返回的列表不完整", retryable=True
)
FORGE_TOO_LARGE: Final = _code("forge_too_large", "the forge's answer is too large", "Gitea 的响应过大")
FORGE_RATE_LIMITED: Final = _code(
    "forge_rate_limited", "the forge asks to slow down", "Gitea 限制了请求频率", retryable=True
)
FORGE_AUTH: Final = _code("forge_auth", "the forge does not accept the bot's token", "Gitea 不接受机器人的令牌")
FORGE_DENIED: Final = _code("forge_denied", "the forge refuses this to the bot", "Gitea 拒绝了机器人的请求")
FORGE_NOT_FOUND: Final = _code("forge_not_found", "the forge does not show this to the bot", "Gitea 上找不到该对象")
FORGE_NOT_PLAIN_COMMENT: Final = _code(
    "forge_not_plain_comment", "the forge does not hand out this kind of comment", "Gitea 不提供此类评论"
)
FORGE_INVALID: Final = _code("forge_invalid", "the forge refuses the request's content", "Gitea 拒绝了请求内容")
FORGE_LOCKED: Final = _code(
    "forge_locked", "the repository is archived or the thread is locked", "仓库已归档或讨论已锁定"
)
FORGE_CONFLICT: Final = _code("forge_conflict", "the forge reports a conflict", "Gitea 报告冲突")
FORGE_MOVED: Final = _code(
    "forge_moved", "the repository was renamed or transferred", "仓库已改名或转移", retryable=True
)

# Control and query (section 16).
ABORT_TIMEOUT: Final = _code("abort_timeout", "the stop was not confirmed in time", "未能及时确认停止")
ABORTED_BY_OPERATOR: Final = _code("aborted_by_operator", "stopped by an operator", "已由管理员中止")
CANCELLED_BY_OPERATOR: Final = _code("cancelled_by_operator", "cancelled by an operator", "已由管理员取消")
STOPPED_BY_COMMENT: Final = _code("stopped_by_comment", "stopped by a comment", "已按评论要求停止")
RESOURCE_CLOSED: Final = _code("resource_closed", "the issue or pull request was closed", "议题或合并请求已关闭")
AUTHOR_RATE_REACHED: Final = _code(
    "author_rate_reached", "this person began as many runs as an hour allows", "此用户一小时内的任务数已达上限"
)
REPO_RATE_REACHED: Final = _code(
    "repo_rate_reached", "this repository began as many runs as an hour allows", "此仓库一小时内的任务数已达上限"
)
RATE_REACHED: Final = _code("rate_reached", "as many runs were begun as an hour allows", "一小时内的任务总数已达上限")
TASK_BUDGET_SPENT: Final = _code("task_budget_spent", "the budget of this task is spent", "此任务的预算已用完")
REPO_BUDGET_SPENT: Final = _code(
    "repo_budget_spent", "today's budget of this repository is spent", "此仓库今日的预算已用完"
)
DAY_BUDGET_SPENT: Final = _code("day_budget_spent", "today's budget is spent", "今日的总预算已用完")
TURN_STEPS_SPENT: Final = _code("turn_steps_spent", "the run took more steps than it may", "单次执行的步骤数已达上限")
ILLEGAL_TRANSITION: Final = _code("illegal_transition", "that state change is not allowed", "不允许的状态变更")
INVALID_STATE: Final = _code("invalid_state", "not possible in the present state", "当前状态不允许此操作")
INVALID_REQUEST: Final = _code("invalid_request", "the request cannot be understood", "请求无法解析")
TASK_NOT_FOUND: Final = _code("task_not_found", "there is no such task", "任务不存在")
REPOSITORY_NOT_FOUND: Final = _code("repository_not_found", "there is no such repository", "仓库不存在")
VERSION_CONFLICT: Final = _code("version_conflict", "somebody else changed it meanwhile", "已被他人修改")
REQUEST_ID_CONFLICT: Final = _code(
    "request_id_conflict", "the request id was used for another request", "请求编号已用于其他请求"
)
REQUEST_IN_PROGRESS: Final = _code("request_in_progress", "the first request is still running", "首个请求仍在处理中")
INTERNAL_ERROR: Final = _code("internal_error", "an internal error", "内部错误")

ALL: Final[tuple[Code, ...]] = tuple(_registry.values())


def known(code: str) -> bool:
    """Tells whether `code` is in the registry."""
    return code in _registry


def get(code: str) -> Code:
    """Returns the registered code; an unknown one is a Bug."""
    found = _registry.get(code)
    if found is None:
        raise Bug(f"BUG: code {code!r} is not in the registry.")
    return found


def retryable(code: str) -> bool:
    """Tells whether the failure matrix allows a retry for `code`; an unknown code never does."""
    found = _registry.get(code)
    return found is not None and found.retryable


def text(code: str, language: Language = "en") -> str:
    """Returns the words shown to people; an unknown code gets the words of an internal error, never its own name."""
    found = _registry.get(code, _registry[INTERNAL_ERROR])
    return found.zh if language == "zh" else found.en
