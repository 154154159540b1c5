// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// TestBadPayload: a configuration that does not match the sockets is refused.
func TestBadPayload(t *testing.T) {
	size := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	const one = `{"version":1,"wires":[{"guest":{},"dhcp4":true}]}`
	for _, c := range []struct {
		head  []byte
		text  string
		files int
		want  string
	}{
		{size(len(one)), one, 1, ""},
		{size(len(one)), one, 0, "0 sockets, more were announced"},
		{size(len(one)), one, 2, "2 sockets, 1 were announced"},
		{size(len(one) + 1), one, 1, "unexpected EOF"},
		{size(maxConfig + 1), "", 0, "4194305 bytes of configuration, at most 4194304 are accepted"},
		{size(1), "{", 0, "unexpected end of JSON input"},
		{size(13), `{"version":2}`, 0, "version 2, want 1"},
		{nil, "", 0, "the message is too short"},
	} {
		_, err := read(bytes.NewReader([]byte(c.text)), c.head, make([]*os.File, c.files))
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}
