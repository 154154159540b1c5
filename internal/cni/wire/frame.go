// SPDX-License-Identifier: Apache-2.0

package wire

// These are the sizes of the two headers.
const (
	RequestHeader = 16
	AnswerHeader  = 12
)

const (
	version   = 1
	flagNetns = 1
	// maxExit is the largest exit code; otherVersion, in its place, states that the request's version is unknown.
	maxExit      = 0xff
	otherVersion = maxExit + 1
)

// VerbName is the variable with the verb of a request that is not CNI's, from programs of the previous version; current
// ones use the agent's admin socket (internal/node/adminapi). The format of the configuration and of stdout is then the
// verb's own.
const VerbName = "WEFT_VERB"

// Header describes the content of a request.
type Header struct {
	// Netns: the namespace's file descriptor is attached.
	Netns bool
	// Errno is the error of opening CNI_NETNS, else 0.
	Errno uint16
	Env   int // bytes
	Conf  int // bytes
}

// Size returns the length of the whole request.
func (h Header) Size() int { return RequestHeader + h.Env + h.Conf }

// Put writes the header to b, which has at least RequestHeader bytes.
func (h Header) Put(b []byte) {
	flags := byte(0)
	if h.Netns {
		flags |= flagNetns
	}
	copy(b, "weft")
	b[4], b[5], b[6], b[7] = version, flags, byte(h.Errno>>8), byte(h.Errno)
	put32(b[8:], uint32(h.Env))
	put32(b[12:], uint32(h.Conf))
}

// ParseHeader parses a request's header and checks its limits.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < RequestHeader {
		return Header{}, ErrShort
	}
	if string(b[:4]) != "weft" {
		return Header{}, ErrMagic
	}
	if b[4] != version || b[5]&^flagNetns != 0 {
		return Header{}, ErrVersion
	}
	env, conf := get32(b[8:]), get32(b[12:])
	if env > MaxEnv {
		return Header{}, ErrEnv
	}
	if conf > MaxConf {
		return Header{}, ErrConf
	}
	return Header{
		Netns: b[5]&flagNetns != 0,
		Errno: uint16(b[6])<<8 | uint16(b[7]), Env: int(env), Conf: int(conf),
	}, nil
}

// Request is a received call.
type Request struct {
	Header
	env  []byte
	conf []byte
}

// ParseRequest parses a whole request; its length must match its header. The request retains b.
func ParseRequest(b []byte) (Request, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Request{}, err
	}
	if len(b) < h.Size() {
		return Request{}, ErrShort
	}
	if len(b) > h.Size() {
		return Request{}, ErrLong
	}
	cut := RequestHeader + h.Env
	return Request{Header: h, env: b[RequestHeader:cut:cut], conf: b[cut:]}, nil
}

// Stdin returns the configuration as the runtime wrote it.
func (r Request) Stdin() []byte { return r.conf }

// Getenv returns the value of a variable of the request, else empty.
func (r Request) Getenv(name string) string {
	rest := r.env
	for len(rest) > 0 {
		end := 0
		for end < len(rest) && rest[end] != 0 {
			end++
		}
		entry := rest[:end]
		if len(entry) > len(name) && entry[len(name)] == '=' && string(entry[:len(name)]) == name {
			return string(entry[len(name)+1:])
		}
		rest = rest[min(end+1, len(rest)):]
	}
	return ""
}

// AppendEnv appends the CNI_* variables of an environment of NAME=VALUE strings.
func AppendEnv(b []byte, environ []string) []byte {
	for _, e := range environ {
		if len(e) > 4 && e[:4] == "CNI_" {
			b = append(b, e...)
			b = append(b, 0)
		}
	}
	return b
}

// Answer is the header of an answer.
type Answer struct {
	Exit int // exit code
	Len  int // bytes that follow
}

// AppendAnswer appends a whole answer.
func AppendAnswer(b []byte, exit int, stdout []byte) []byte {
	var h [AnswerHeader]byte
	copy(h[:], "WEFT")
	put32(h[4:], uint32(exit)&maxExit)
	put32(h[8:], uint32(len(stdout)))
	return append(append(b, h[:]...), stdout...)
}

// AppendOtherVersion appends the answer to a request of an unknown version. ParseAnswer of every version returns
// ErrVersion for it, so that weft-cni acts as without an agent: ADD is tried again, DEL is queued.
func AppendOtherVersion(b []byte) []byte {
	var h [AnswerHeader]byte
	copy(h[:], "WEFT")
	put32(h[4:], otherVersion)
	return append(b, h[:]...)
}

// ParseAnswer parses the header of an answer.
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) < AnswerHeader {
		return Answer{}, ErrShort
	}
	if string(b[:4]) != "WEFT" {
		return Answer{}, ErrMagic
	}
	code, length := get32(b[4:]), get32(b[8:])
	if code > maxExit {
		return Answer{}, ErrVersion
	}
	if length > MaxAnswer {
		return Answer{}, ErrAnswer
	}
	return Answer{Exit: int(code), Len: int(length)}, nil
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
}

func get32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
