// SPDX-License-Identifier: Apache-2.0

package wire

// The sizes of the two headers.
const (
	RequestHeader = 16
	AnswerHeader  = 12
)

const (
	version   = 1
	flagNetns = 1
)

// VerbName is the variable that names what programs of the version before this one ask beyond CNI's verbs, which have
// CNI_COMMAND instead; today's ask on the agent's other socket (internal/node/adminapi). The
// configuration is then that verb's own words, and so is what belongs on stdout.
const VerbName = "WEFT_VERB"

// Header says what a request holds.
type Header struct {
	// Netns tells that the namespace's descriptor is passed along.
	Netns bool
	// Errno is why CNI_NETNS could not be opened, 0 when it was or when there is none.
	Errno uint16
	Env   int // bytes
	Conf  int // bytes
}

// Size is the length of the whole request.
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

// ParseHeader reads a request's header and checks its limits.
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

// Request is a call as it travels.
type Request struct {
	Header
	env  []byte
	conf []byte
}

// ParseRequest reads a whole request; it refuses one that is shorter or longer than its header says. The request keeps
// b.
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

// Stdin is the configuration as the runtime wrote it.
func (r Request) Stdin() []byte { return r.conf }

// Getenv is the value of a variable that was handed over, empty when it was not.
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

// AppendEnv appends the variables that a call consists of (CNI_*) from an environment of NAME=VALUE strings.
func AppendEnv(b []byte, environ []string) []byte {
	for _, e := range environ {
		if len(e) > 4 && e[:4] == "CNI_" {
			b = append(b, e...)
			b = append(b, 0)
		}
	}
	return b
}

// Answer is what the header of an answer says.
type Answer struct {
	Exit int // exit code
	Len  int // bytes that follow
}

// AppendAnswer appends a whole answer.
func AppendAnswer(b []byte, exit int, stdout []byte) []byte {
	var h [AnswerHeader]byte
	copy(h[:], "WEFT")
	put32(h[4:], uint32(exit)&0xff)
	put32(h[8:], uint32(len(stdout)))
	return append(append(b, h[:]...), stdout...)
}

// ParseAnswer reads the header of an answer.
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) < AnswerHeader {
		return Answer{}, ErrShort
	}
	if string(b[:4]) != "WEFT" {
		return Answer{}, ErrMagic
	}
	code, length := get32(b[4:]), get32(b[8:])
	if code > 0xff {
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
