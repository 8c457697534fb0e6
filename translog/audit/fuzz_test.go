package audit

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// FuzzLeaf reads arbitrary entries. What is read is exactly what the log would write, and whatever it says, no judge falls over it.
func FuzzLeaf(f *testing.F) {
	for _, l := range small() {
		f.Add(l.Entries()[0])
	}
	f.Add([]byte(`{"type":"books.closed","topic":"books","seq":0,"at":"2023-08-23T15:00:00.000000Z","part":1,"parts":2,"text":"{\"a\u001f\n"}`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		l, p := parseLeaf(entry)
		if p != nil {
			if p.what == "" || p.expected == "" {
				t.Fatalf("%+v", p)
			}
			return
		}
		head := audittest.Leaf{Type: l.kind, Topic: l.topic.String(), Seq: l.seq, At: l.at, Data: "{}"}.Entries()[0]
		head = bytes.TrimSuffix(head, []byte(`"data":{}}`))
		if !bytes.HasPrefix(entry, head) {
			t.Fatalf("read %q as %q", entry, head)
		}
		if l.part > 0 {
			if text := audittest.Quote(l.text); !bytes.HasSuffix(entry, []byte(`"text":`+text+`}`)) {
				t.Fatalf("read %q as the text %q", entry, text)
			}
			return
		}
		// A strict reader of JSON takes the data too, and would write it in the same way.
		value := jsontext.Value(bytes.Clone(l.data))
		if !value.IsValid() {
			t.Fatalf("%q is taken for JSON", l.data)
		}
		if err := value.Compact(); err != nil || !bytes.Equal(value, l.data) {
			t.Fatalf("%q is %q: %v", l.data, value, err)
		}
		for _, before := range [][]audittest.Leaf{nil, hand()[:1], hand()[:3], hand()[:9], small()[:1]} {
			j, finding := judgeLeaves(before)
			if finding != nil {
				t.Fatal(finding)
			}
			again := l
			if len(before) > 0 {
				again.topic, again.seq, again.at = j.last(), int64(len(before)), l.at.Add(24*365*100*time.Hour)
			}
			if f := j.next(&again, nil); f != nil && (f.What == "" || f.Error() == "") {
				t.Fatalf("%+v", f)
			}
			j.tally()
		}
	})
}

// last is a topic of the log.
func (j *judge) last() (t topic) {
	for t = range j.topics {
	}
	return t
}

// FuzzScan compares with a strict reader of JSON.
func FuzzScan(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2,true,false,null,"\u001f\n"]}`, `[[],{},""]`, `{"a":1,"a":2}`, `-0`, `01`, "\"\xff\"", `"\u0041"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rest, err := scan(text)
		if err != nil {
			return
		}
		taken := text[:len(text)-len(rest)]
		if !jsontext.Value(taken).IsValid() {
			t.Fatalf("%q is taken for JSON", taken)
		}
		if end := skip(append(bytes.Clone(taken), ',')); end != len(taken) {
			t.Fatalf("%q ends at %d, not %d", taken, end, len(taken))
		}
		if taken[0] == '{' {
			o := newObject(taken)
			o.find("a")
			o.str("a")
			o.integer("a", 0, 9)
			o.alias("a")
			o.hex("a", 0, 4)
			for _, inner := range o.objects("a") {
				inner.time("t")
			}
		}
	})
}
