// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"syscall"

	"github.com/weft-net/weft/internal/cni/wire"
)

// Env is the process environment, passed by main.
type Env struct {
	Environ []string
	// Stdin, Stdout and Stderr are descriptors.
	Stdin, Stdout, Stderr int
	// Argv0 is the name under which the program was executed.
	Argv0 string
	// UnixNano is the clock and Pid the process id, which together make the name of a queue entry unique.
	UnixNano func() int64
	Pid      int
}

// The error codes of the CNI specification that are used here (model.Code, which this package must not import).
const (
	codeEnv     = 4
	codeIO      = 5
	codeConf    = 7
	codeAgain   = 11
	codeNoReady = 50
)

const usage = "weft-cni: a CNI plugin that forwards its calls to the weft agent; a container runtime executes it (CNI_COMMAND is not set)\n"

const versions = `{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"

// call is one CNI call in progress.
type call struct {
	env     Env
	command string
	frame   []byte // the request; its header is written last
	conf    []byte // the part of frame that is the configuration
	socket  string
}

// Run handles the call and returns the exit code.
func Run(env Env) int {
	c := call{env: env, command: getenv(env.Environ, "CNI_COMMAND")}
	if c.command == "" {
		put(env.Stderr, []byte(usage))
		return 0
	}
	if c.command == "VERSION" {
		return c.reply(0, []byte(versions))
	}
	if code, msg := c.read(); code != 0 {
		return c.fail(code, msg, "")
	}
	c.socket = wire.Socket(c.conf)
	if c.socket[0] != '/' || len(c.socket) > wire.MaxSocket {
		return c.fail(codeConf, "socket "+c.socket+": not an absolute path of at most 102 bytes",
			"name the agent's socket in the key socket")
	}
	exit, out, err := c.exchange()
	if err == nil {
		return c.reply(exit, out)
	}
	return c.answerWithoutAgent(err)
}

// read collects the environment and stdin in the frame; code is 0 or that of an error.
func (c *call) read() (code int, msg string) {
	b := wire.AppendEnv(make([]byte, wire.RequestHeader, 8<<10), c.env.Environ)
	if name := wire.AgentPlugin(c.env.Argv0); name != "" {
		b = append(append(b, wire.PluginVar+"="...), name...)
		b = append(b, 0)
	}
	start := len(b)
	if start-wire.RequestHeader > wire.MaxEnv {
		return codeEnv, wire.ErrEnv.Error()
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := syscall.Read(c.env.Stdin, b[len(b):cap(b)])
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EAGAIN {
			err = ready(c.env.Stdin, false)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return codeIO, "stdin: " + err.Error()
		}
		if n <= 0 {
			break
		}
		if b = b[:len(b)+n]; len(b)-start > wire.MaxConf {
			return codeConf, wire.ErrConf.Error()
		}
	}
	c.frame, c.conf = b, b[start:]
	return 0, ""
}

// answerWithoutAgent answers the call itself; why is the reason why the agent does not.
func (c *call) answerWithoutAgent(why error) int {
	msg := "weft agent does not answer at " + c.socket + ": " + why.Error()
	hint := "is `weft agent` running on this node?"
	if why == wire.ErrVersion {
		msg = "weft agent at " + c.socket + ": " + why.Error()
		hint = "weft-cni and the agent are of releases that do not work together: finish the upgrade or the roll back of this node"
	}
	switch c.command {
	case "ADD", "CHECK", "GC":
		return c.fail(codeAgain, msg, hint)
	case "STATUS":
		return c.fail(codeNoReady, msg, hint)
	case "DEL":
		if path, err := c.enqueue(); err != nil {
			return c.fail(codeIO, "DEL cannot be queued: "+path+": "+err.Error(), msg+"; "+hint)
		}
		return 0
	}
	return c.fail(codeEnv, "CNI_COMMAND: unknown value "+c.command, "")
}

// reply writes an answer to stdout.
func (c *call) reply(exit int, out []byte) int {
	if !put(c.env.Stdout, out) {
		return 1
	}
	return exit
}

// fail writes a CNI error object to stdout.
func (c *call) fail(code int, msg, details string) int {
	version, found := wire.Field(c.conf, "cniVersion")
	if !found {
		version = "0.1.0" // what a configuration without the key means
	}
	b := wire.AppendString([]byte(`{"cniVersion":`), version)
	b = append(b, `,"code":`...)
	if code >= 10 {
		b = append(b, byte('0'+code/10))
	}
	b = append(b, byte('0'+code%10))
	b = wire.AppendString(append(b, `,"msg":`...), msg)
	if details != "" {
		b = wire.AppendString(append(b, `,"details":`...), details)
	}
	return c.reply(1, append(b, "}\n"...))
}

func getenv(environ []string, name string) string {
	for _, e := range environ {
		if len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name {
			return e[len(name)+1:]
		}
	}
	return ""
}

func put(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR || err == syscall.EAGAIN && ready(fd, true) == nil {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// ready waits until a descriptor can be read or written. A runtime may pass the non-blocking end of a pipe; making it
// blocking would also change the runtime's own end of a socket or a terminal.
func ready(fd int, write bool) error {
	const most = 30 // valid for any word size
	if fd > most {
		return syscall.EBADF
	}
	for {
		var set syscall.FdSet
		set.Bits[0] = 1 << fd
		in, out := &set, (*syscall.FdSet)(nil)
		if write {
			in, out = out, in
		}
		if _, err := syscall.Select(fd+1, in, out, nil, nil); err != syscall.EINTR {
			return err
		}
	}
}
