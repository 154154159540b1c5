// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"path"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// tuningDir is where the reference plugin records the previous settings of an interface.
const tuningDir = "/run/cni/tuning"

// File is a file in the reference plugin's format, written so that either program can process the DEL of an ADD that
// the other one processed.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// backupFile is the content of the reference plugin's file.
type backupFile struct {
	MAC      string `json:"mac,omitempty"`
	Promisc  *bool  `json:"promisc,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	AllMulti *bool  `json:"allmulti,omitempty"`
	TxQLen   *int   `json:"txQLen,omitempty"`
}

func (c tuning) backupPath(r model.Request) string {
	dir := c.DataDir
	if dir == "" {
		dir = tuningDir
	}
	return path.Join(dir, r.ContainerID+"_"+r.IfName+".json")
}

func (c tuning) backup(r model.Request, was state.Link) *File {
	b := backupFile{Promisc: was.Promisc, MTU: was.MTU, AllMulti: was.AllMulti, TxQLen: was.TxQLen}
	if !was.MAC.IsZero() {
		b.MAC = was.MAC.String()
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return nil // cannot happen: every field is marshalable
	}
	return &File{Path: c.backupPath(r), Text: string(text)}
}

// Trace returns the query for the backup file of a tuned interface.
func (Tuning) Trace(in Input) []state.Query {
	return []state.Query{{Space: state.Host, File: tracedBackup(in)}}
}

// tracedBackup returns the path of the backup file. It depends on dataDir only: the other keys need not be valid.
func tracedBackup(in Input) string {
	c, err := decoded(in, decodeTuning)
	if err != nil || !path.IsAbs(c.DataDir) {
		c.DataDir = ""
	}
	return tuning{tuningConf: c}.backupPath(in.Request)
}

// Traces returns the previous settings that the backup file records. An unreadable file records nothing, as for the
// reference plugin.
func (Tuning) Traces(in Input) Step {
	path := tracedBackup(in)
	answer := in.Answers[state.Query{Space: state.Host, File: path}]
	if !answer.Found {
		return Step{}
	}
	step := Step{Backup: &File{Path: path}}
	var b backupFile
	if json.Unmarshal([]byte(answer.Value), &b) != nil {
		return step
	}
	was := state.Link{Name: in.Request.IfName, Promisc: b.Promisc, MTU: b.MTU, AllMulti: b.AllMulti, TxQLen: b.TxQLen}
	if mac, err := state.ParseMAC(b.MAC); err == nil {
		was.MAC = mac
	}
	step.Restore = state.Fragment{Owner: Owner(in.Request.Key()), Pod: state.Space{Links: []state.Link{was}}}
	return step
}
