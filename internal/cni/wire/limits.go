// SPDX-License-Identifier: Apache-2.0

package wire

// What each side accepts. A request beyond them is refused, not cut.
const (
	MaxEnv    = 64 << 10 // bytes of CNI_* variables
	MaxConf   = 4 << 20  // bytes of configuration
	MaxAnswer = 8 << 20  // bytes of stdout
)

// How long weft-cni waits, in milliseconds. All but the last together stay below a second.
const (
	// ConnectMillis bounds connecting and handing over.
	ConnectMillis = 250
	// AnswerMillis is how long a call may take before weft-cni asks whether the agent is there at all.
	AnswerMillis = 300
	// PingMillis bounds the answer to that.
	PingMillis = 400
	// CallMillis bounds a whole call. Kubelet gives a sandbox 2 to 4 minutes; an agent that needs more than one to attach
	// a pod is better asked again.
	CallMillis = 60_000
)

// DefaultSocket is where the agent listens unless the configuration's key "socket" says otherwise.
const DefaultSocket = "/run/weft/agent.sock"

// MaxSocket is the length of the longest path of an agent's socket, in bytes: with the suffix of PingSocket it still
// fits into a sockaddr_un with its NUL.
const MaxSocket = 107 - len(PingSuffix)

// PingSuffix is what PingSocket adds.
const PingSuffix = ".ping"

// PingSocket is where the agent tells whether it is there: who connects is given an empty answer, unasked. It is a
// socket of its own, so that nobody waits behind the calls.
func PingSocket(socket string) string { return socket + PingSuffix }

// Error is a word that does not follow the protocol.
type Error string

// Error is the message.
func (e Error) Error() string { return string(e) }

// What can be wrong with a frame.
const (
	ErrMagic   Error = "not a weft frame"
	ErrVersion Error = "weft frame of another version"
	ErrShort   Error = "weft frame is incomplete"
	ErrLong    Error = "weft frame is longer than its header says"
	ErrEnv     Error = "CNI_* variables are larger than 64 KiB"
	ErrConf    Error = "configuration is larger than 4 MiB"
	ErrAnswer  Error = "answer is larger than 8 MiB"
)

// What an agent may do instead of answering.
const (
	ErrSilent Error = "no answer in time"
	ErrBroken Error = "the connection broke before the answer"
)
