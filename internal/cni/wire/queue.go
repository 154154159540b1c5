// SPDX-License-Identifier: Apache-2.0

package wire

// The names of the queue's files: a queued DEL, one being written, and an unreadable one.
const (
	QueueSuffix = ".del"
	TempPrefix  = ".tmp-"
	BadSuffix   = ".bad"
)

// QueueDir returns the directory of the queued DELs: "queue" next to the socket.
func QueueDir(socket string) string { return Dir(socket) + "/queue" }

// Dir returns the directory of a clean path, as path.Dir does.
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

// QueueName returns the name of an entry. Names sort by time and are unique among processes.
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
