// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// RecordVersion is the format of the records that this program writes. A record of a newer format is rejected and never
// deleted.
const RecordVersion = 1

// ErrNewer is wrapped by the error about a record that a newer program wrote.
var ErrNewer = errors.New("record of a newer version")

// Stage is the progress of an attachment.
type Stage string

// The stages of an attachment.
const (
	Pending   Stage = "pending"   // recorded, not finished; undone if its call was killed
	Done      Stage = "done"      // the caller has the result
	Releasing Stage = "releasing" // its DEL has begun; the undo is completed
)

// Record is the stored state of one attachment, or of a virtual machine in a pod. It suffices to undo it.
type Record struct {
	Version int    `json:"version"`
	Boot    string `json:"boot,omitempty"` // the node's boot id when it was written
	Stage   Stage  `json:"stage"`
	// Serial distinguishes two ADDs of one key.
	Serial  int64         `json:"serial"` // unix nanoseconds of the ADD
	Request model.Request `json:"request"`
	NetnsID uint64        `json:"netnsID,omitempty"`
	// Network is the configuration of the ADD.
	Network model.Network `json:"network"`
	// Acts are the steps that were done, or were about to be done, in order. They are undone in reverse.
	Acts []Act `json:"acts,omitempty"`
	// Result is the last result; in a done record, the one that was returned to the caller.
	Result *model.Result `json:"result,omitempty"`
	// Standby: another attachment has the addresses, and this node does not route to them or announce them. Deferred is
	// the state that Activate applies.
	Standby  bool            `json:"standby,omitempty"`
	Deferred *state.Fragment `json:"withheld,omitempty"`
	// Switching: Activate or Retire has begun and has not finished.
	Switching bool `json:"turning,omitempty"`
	// Observed is what was observed of the interface.
	Observed ObservedInterface `json:"looks,omitzero"`
	// Container is set once the interface was handed over to a container engine.
	Container *Container `json:"container,omitempty"`
	// VM is set in the record of a virtual machine.
	VM *VM `json:"machine,omitempty"`
}

// ObservedInterface is what was observed of an interface that a foreign plugin has created without reporting it.
type ObservedInterface struct {
	// Tap: the interface is a macvtap, and exists.
	Tap bool `json:"tap,omitempty"`
	// End is the node's end of an interface that a foreign plugin has created, if any; EndPort: it is a port of a bridge.
	End     string `json:"end,omitempty"`
	EndPort bool   `json:"endPort,omitempty"`
	// Device is the PCI address of an interface that a program drives in user space, without a link in the container.
	Device string `json:"device,omitempty"`
}

// ActKind is the kind of an act.
type ActKind string

// The kinds of acts.
const (
	ActIPAM  ActKind = "ipam"  // addresses were allocated for the plugin's IPAM section
	ActApply ActKind = "apply" // a fragment was applied
	ActExec  ActKind = "exec"  // a foreign plugin was executed
	ActSave  ActKind = "save"  // a delegate was saved

	ActVM ActKind = "machine" // a virtual machine was connected in its pod
)

// Act is one step of an ADD, as in a write-ahead log: it is recorded before it is done, so that a rollback finds what
// to undo, also after the agent was killed.
type Act struct {
	Kind ActKind `json:"kind"`
	// Plugin indexes Network.Plugins, for ipam and exec.
	Plugin int `json:"plugin"`
	// IPs are the addresses that were allocated.
	IPs []model.IP `json:"ips,omitempty"`
	// Fragment is what was applied.
	Fragment *state.Fragment `json:"fragment,omitempty"`
	// Restore is the state that the fragment changed. It is applied when the fragment has been removed.
	Restore *state.Fragment `json:"restore,omitempty"`
	// Files are written before the kernel is changed and are removed with the act.
	Files []plugin.File `json:"files,omitempty"`
	// Guests are the DHCP and router advertisement settings of guests on links that the fragment creates.
	Guests state.List[model.GuestConfig] `json:"guests,omitempty"`
	// NewLinks are the names of the fragment's shared links that did not exist before.
	NewLinks []string `json:"fresh,omitempty"`
	// Published is set in the act that maps ports of the node for a container engine.
	Published *Published `json:"published,omitempty"`
	// State is the progress of the act of a VM's interface. Other acts have none: they are undone with the whole record,
	// and what a VM's interfaces share is undone with the last of them.
	State ActState `json:"state,omitempty"`
	// Interface is the VM's interface; nil in the act of what all its interfaces share.
	Interface *VMInterface `json:"interface,omitempty"`
	// Granted is the device of the node that the hypervisor's user was granted.
	Granted *GrantedDevice `json:"given,omitempty"`
}

// Key returns the record's attachment.
func (r Record) Key() model.AttachmentKey { return r.Request.Key() }

// Since returns when the ADD began.
func (r Record) Since() time.Time { return time.Unix(0, r.Serial) }

// Fragment returns everything that the record's acts applied, merged.
func (r Record) Fragment() state.Fragment {
	var f state.Fragment
	for _, act := range r.Acts {
		if act.Fragment == nil {
			continue
		}
		f.Owner = act.Fragment.Owner
		f.Merge(*act.Fragment)
	}
	return f
}

// Guests returns the settings of guests on links that the record's acts have created.
func (r Record) Guests() []model.GuestConfig {
	var out []model.GuestConfig
	for _, act := range r.Acts {
		out = append(out, act.Guests...)
	}
	return out
}

// Joins returns the joins that the record's acts have made in the pod.
func (r Record) Joins() []state.Join {
	var out []state.Join
	for _, act := range r.Acts {
		if act.Fragment != nil {
			out = append(out, act.Fragment.Pod.Joins...)
		}
	}
	return out
}

// RecordStore stores records. The ledger (agent) and the journal (standalone) implement it.
type RecordStore interface {
	// Put writes records of one container and one stage. After an error a record is unchanged. Only the ledger gets
	// several records at once; it writes all or none.
	Put(records ...Record) error
	// SetStage writes records of one container in another stage than their own, in which they are stored. Nothing else of
	// them has changed since they were stored. As Put otherwise.
	SetStage(stage Stage, records ...Record) error
	Get(k model.AttachmentKey) (Record, bool, error)
	// List returns all readable records; the error joins those of the unreadable ones.
	List() ([]Record, error)
	Delete(k model.AttachmentKey) error
}

// Encode returns the stored form of a record.
func Encode(r Record) ([]byte, error) {
	r.Version = RecordVersion
	b, err := json.Marshal(r)
	if err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "record %s: %w", r.Key(), err)
	}
	return b, nil
}

// storedHead returns the beginning of the stored form of a record. The encoded fields are the first of Record, and
// others follow them, because a request is always encoded.
func storedHead(r Record) ([]byte, error) {
	b, err := json.Marshal(struct {
		Version int    `json:"version"`
		Boot    string `json:"boot,omitempty"`
		Stage   Stage  `json:"stage"`
		Serial  int64  `json:"serial"`
	}{RecordVersion, r.Boot, r.Stage, r.Serial})
	if err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "record %s: %w", r.Key(), err)
	}
	b[len(b)-1] = ',' // instead of the closing brace
	return b, nil
}

// Restage returns the stored form of a record in another stage. old is its stored form, of which only the beginning is
// encoded again, if it begins as that of r does: it is in r's stage then, and of the same ADD. Otherwise all of r is
// encoded.
func Restage(old []byte, r Record, stage Stage) ([]byte, error) {
	before, err := storedHead(r)
	if err != nil {
		return nil, err
	}
	r.Stage = stage
	rest, same := bytes.CutPrefix(old, before)
	if !same {
		return Encode(r)
	}
	after, err := storedHead(r)
	return append(after, rest...), err
}

// CheckStored returns an error if a stored record was written by a newer program, without decoding all of it.
func CheckStored(where string, b []byte) error {
	if bytes.HasPrefix(b, []byte(`{"version":`+strconv.Itoa(RecordVersion)+`,`)) {
		return nil
	}
	if _, err := Decode(where, b); errors.Is(err, ErrNewer) {
		return err
	}
	return nil
}

// Decode decodes the stored form; where is the location for errors.
func Decode(where string, b []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(b, &r)
	if err == nil && r.Version == RecordVersion {
		return r, nil
	}
	var v struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(b, &v) == nil && v.Version > RecordVersion {
		return Record{}, model.Errorf(model.CodeIO, "start the newer weft, or let it DEL the attachment",
			"%s: version %d, this program knows %d: %w", where, v.Version, RecordVersion, ErrNewer)
	}
	if err == nil {
		err = errors.New("no version")
	}
	return Record{}, model.Errorf(model.CodeIO, "", "%s: unreadable record: %w", where, err)
}

// addresses returns the addresses that were allocated for a record.
func addresses(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, act := range rec.Acts {
		for _, ip := range act.IPs {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

func sharedTables(f state.Fragment) []state.Table {
	var out []state.Table
	for _, t := range f.Host.Tables {
		if t.Shared {
			out = append(out, t)
		}
	}
	return out
}

// sum merges fragments into a new one, which shares no memory with them.
func sum(owner string, parts ...state.Fragment) state.Fragment {
	f := state.Fragment{Owner: owner}
	for _, part := range parts {
		f.Merge(part)
	}
	return f
}

// Pod returns the record's pod, the zero value if it has none.
func (r Record) Pod() model.PodRef {
	if o := r.Request.Origin; o != nil {
		return o.Pod
	}
	var pod model.PodRef
	pod.Namespace, _ = r.Request.Arg("K8S_POD_NAMESPACE")
	pod.Name, _ = r.Request.Arg("K8S_POD_NAME")
	pod.UID, _ = r.Request.Arg("K8S_POD_UID")
	return pod
}
