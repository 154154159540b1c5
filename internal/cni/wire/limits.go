// SPDX-License-Identifier: Apache-2.0

package wire

// The limits of both sides. A larger request is rejected, not truncated.
const (
	MaxEnv    = 64 << 10 // bytes of CNI_* variables
	MaxConf   = 4 << 20  // bytes of configuration
	MaxAnswer = 8 << 20  // bytes of stdout
)

// How long weft-cni waits, in milliseconds. All but the last together stay below a second.
const (
	// ConnectMillis bounds connecting and sending.
	ConnectMillis = 250
	// AnswerMillis is how long a call may take before weft-cni pings the agent.
	AnswerMillis = 300
	// PingMillis bounds the answer to the ping.
	PingMillis = 400
	// CallMillis bounds a whole call. The kubelet's timeout for a sandbox is 2 to 4 minutes; if an agent needs more than
	// one to attach a pod, a retry is better.
	CallMillis = 60_000
)

// DefaultSocket is where the agent listens unless the configuration's key "socket" says otherwise.
const DefaultSocket = "/run/weft/agent.sock"

// MaxSocket is the length of the longest path of an agent's socket, in bytes: with the suffix of PingSocket it still
// fits into a sockaddr_un with its NUL.
const MaxSocket = 107 - len(PingSuffix)

// PingSuffix is the suffix of the ping socket.
const PingSuffix = ".ping"

// PingSocket returns the path of the agent's ping socket: it sends an empty answer to each connection, without a
// request. It is a separate socket, so that pings do not wait for calls.
func PingSocket(socket string) string { return socket + PingSuffix }

// Error is an error of the protocol.
type Error string

// Error returns the message.
func (e Error) Error() string { return string(e) }

// Errors of a frame.
const (
	ErrMagic   Error = "not a weft frame"
	ErrVersion Error = "weft frame of another version"
	ErrShort   Error = "weft frame is incomplete"
	ErrLong    Error = "weft frame is longer than its header says"
	ErrEnv     Error = "CNI_* variables are larger than 64 KiB"
	ErrConf    Error = "configuration is larger than 4 MiB"
	ErrAnswer  Error = "answer is larger than 8 MiB"
)

// Errors of an agent that does not answer.
const (
	ErrSilent Error = "no answer in time"
	ErrBroken Error = "the connection broke before the answer"
)
