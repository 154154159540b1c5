// SPDX-License-Identifier: Apache-2.0

package wire

// What the files of the queue are called: a DEL that waits, one being written, and one that nobody can read.
const (
	QueueSuffix = ".del"
	TempPrefix  = ".tmp-"
	BadSuffix   = ".bad"
)

// QueueDir is the directory of the DELs that could not be handed over: "queue" beside the socket.
func QueueDir(socket string) string { return Dir(socket) + "/queue" }

// Dir is the directory of a path, as path.Dir gives it for a clean one.
func Dir(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			if i == 0 {
				return "/"
			}
			return path[:i]
		}
	}
	return "."
}

// QueueName names an entry so that names sort by time and no two processes choose the same one.
func QueueName(unixNano int64, pid int) string {
	return string(append(pad(nil, uint64(unixNano), 20), '-')) + string(pad(nil, uint64(pid), 10)) + QueueSuffix
}

func pad(b []byte, v uint64, width int) []byte {
	var d [20]byte
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = byte('0' + v%10)
		v /= 10
	}
	return append(b, d[len(d)-width:]...)
}
