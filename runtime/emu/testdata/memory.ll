; Kernels whose memory accesses are those that LLVM makes of a source: for
; compiled_test.go, which knows what they have to compute.
target triple = "amdgcn-amd-amdhsa"

@shared = internal addrspace(3) global [64 x i64] poison, align 16
@counter = addrspace(1) global i32 1000, align 4
@primes = internal addrspace(1) constant [4 x i32] [i32 2, i32 3, i32 5, i32 7], align 16
@squares = internal addrspace(1) constant [4 x i32] [i32 0, i32 1, i32 4, i32 9], align 16
@tables = internal addrspace(1) constant [2 x ptr addrspace(1)] [ptr addrspace(1) @primes, ptr addrspace(1) @squares], align 8

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare void @llvm.amdgcn.s.barrier()

; out[t] = what a loop left at a dynamic index of an array of the lane's own.
define amdgpu_kernel void @private(ptr addrspace(1) %out) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = alloca [48 x i32], addrspace(5)
  br label %loop
loop:
  %j = phi i32 [ 0, %entry ], [ %next, %loop ]
  %k = add i32 %t, %j
  %at = urem i32 %k, 48
  %p = getelementptr [48 x i32], ptr addrspace(5) %a, i32 0, i32 %at
  %x = mul i32 %t, 100
  %y = add i32 %x, %j
  store volatile i32 %y, ptr addrspace(5) %p
  %next = add i32 %j, 1
  %more = icmp ult i32 %next, 48
  br i1 %more, label %loop, label %end
end:
  %q = getelementptr [48 x i32], ptr addrspace(5) %a, i32 0, i32 7
  %v = load volatile i32, ptr addrspace(5) %q
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}

; A function with a frame of its own, and one that calls it: through flat pointers.
define internal void @fill(ptr %p, i32 %n) #1 {
entry:
  br label %loop
loop:
  %j = phi i32 [ 0, %entry ], [ %next, %loop ]
  %q = getelementptr i32, ptr %p, i32 %j
  %x = mul i32 %j, %n
  store volatile i32 %x, ptr %q
  %next = add i32 %j, 1
  %more = icmp ult i32 %next, 8
  br i1 %more, label %loop, label %end
end:
  ret void
}
define internal i32 @sum(i32 %n) #1 {
  %a = alloca [8 x i32], addrspace(5)
  %f = addrspacecast ptr addrspace(5) %a to ptr
  call void @fill(ptr %f, i32 %n)
  %p = getelementptr [8 x i32], ptr addrspace(5) %a, i32 0, i32 3
  %x = load volatile i32, ptr addrspace(5) %p
  %q = getelementptr [8 x i32], ptr addrspace(5) %a, i32 0, i32 7
  %y = load volatile i32, ptr addrspace(5) %q
  %s = add i32 %x, %y
  ret i32 %s
}
; out[t] = 3*t + 7*t + t + (3+7)*(t+1)
define amdgpu_kernel void @calls(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %u = add i32 %t, 1
  %x = call i32 @sum(i32 %t)
  %y = call i32 @sum(i32 %u)
  %s = add i32 %x, %y
  %r = add i32 %s, %t
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %r, ptr addrspace(1) %o
  ret void
}

; out[t] = tables[t%2][t/2%4]; each wave adds to a variable of the code object.
define amdgpu_kernel void @lookup(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %which = urem i32 %t, 2
  %pp = getelementptr [2 x ptr addrspace(1)], ptr addrspace(1) @tables, i32 0, i32 %which
  %table = load ptr addrspace(1), ptr addrspace(1) %pp
  %half = udiv i32 %t, 2
  %at = urem i32 %half, 4
  %p = getelementptr [4 x i32], ptr addrspace(1) %table, i32 0, i32 %at
  %x = load i32, ptr addrspace(1) %p
  %old = atomicrmw add ptr addrspace(1) @counter, i32 1 monotonic
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %x, ptr addrspace(1) %o
  %last = icmp eq i32 %t, 0
  br i1 %last, label %then, label %end
then:
  %count = load atomic i32, ptr addrspace(1) @counter syncscope("agent") monotonic, align 4
  %oc = getelementptr i32, ptr addrspace(1) %out, i32 64
  store i32 %count, ptr addrspace(1) %oc
  br label %end
end:
  ret void
}

; out[0..] = hidden arguments: block counts, group sizes, dimensions, dynamic LDS.
define amdgpu_kernel void @hidden(ptr addrspace(1) %out, i32 %n) #3 {
  %i = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %p0 = getelementptr i8, ptr addrspace(4) %i, i64 0
  %v0 = load i32, ptr addrspace(4) %p0
  %z0 = add i32 %v0, 0
  %o0 = getelementptr i32, ptr addrspace(1) %out, i32 0
  store i32 %z0, ptr addrspace(1) %o0
  %p1 = getelementptr i8, ptr addrspace(4) %i, i64 4
  %v1 = load i32, ptr addrspace(4) %p1
  %z1 = add i32 %v1, 0
  %o1 = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %z1, ptr addrspace(1) %o1
  %p2 = getelementptr i8, ptr addrspace(4) %i, i64 8
  %v2 = load i32, ptr addrspace(4) %p2
  %z2 = add i32 %v2, 0
  %o2 = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i32 %z2, ptr addrspace(1) %o2
  %p3 = getelementptr i8, ptr addrspace(4) %i, i64 12
  %v3 = load i16, ptr addrspace(4) %p3
  %z3 = zext i16 %v3 to i32
  %o3 = getelementptr i32, ptr addrspace(1) %out, i32 3
  store i32 %z3, ptr addrspace(1) %o3
  %p4 = getelementptr i8, ptr addrspace(4) %i, i64 14
  %v4 = load i16, ptr addrspace(4) %p4
  %z4 = zext i16 %v4 to i32
  %o4 = getelementptr i32, ptr addrspace(1) %out, i32 4
  store i32 %z4, ptr addrspace(1) %o4
  %p5 = getelementptr i8, ptr addrspace(4) %i, i64 16
  %v5 = load i16, ptr addrspace(4) %p5
  %z5 = zext i16 %v5 to i32
  %o5 = getelementptr i32, ptr addrspace(1) %out, i32 5
  store i32 %z5, ptr addrspace(1) %o5
  %p6 = getelementptr i8, ptr addrspace(4) %i, i64 18
  %v6 = load i16, ptr addrspace(4) %p6
  %z6 = zext i16 %v6 to i32
  %o6 = getelementptr i32, ptr addrspace(1) %out, i32 6
  store i32 %z6, ptr addrspace(1) %o6
  %p7 = getelementptr i8, ptr addrspace(4) %i, i64 40
  %v7 = load i64, ptr addrspace(4) %p7
  %z7 = trunc i64 %v7 to i32
  %o7 = getelementptr i32, ptr addrspace(1) %out, i32 7
  store i32 %z7, ptr addrspace(1) %o7
  %p8 = getelementptr i8, ptr addrspace(4) %i, i64 64
  %v8 = load i16, ptr addrspace(4) %p8
  %z8 = zext i16 %v8 to i32
  %o8 = getelementptr i32, ptr addrspace(1) %out, i32 8
  store i32 %z8, ptr addrspace(1) %o8
  %on = getelementptr i32, ptr addrspace(1) %out, i32 9
  store i32 %n, ptr addrspace(1) %on
  ret void
}

; out[0..15] = the words of the dispatch packet.
define amdgpu_kernel void @packet(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %d = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %at = urem i32 %t, 16
  %p = getelementptr i32, ptr addrspace(4) %d, i32 %at
  %x = load i32, ptr addrspace(4) %p
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %at
  store i32 %x, ptr addrspace(1) %o
  ret void
}

; Preloaded arguments. out[64*g + t] = a*t + b
define amdgpu_kernel void @preload(ptr addrspace(1) inreg %out, i32 inreg %a, i32 inreg %b) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %x = mul i32 %a, %t
  %y = add i32 %x, %b
  %gg = mul i32 %g, 64
  %at = add i32 %gg, %t
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %at
  store i32 %y, ptr addrspace(1) %o
  ret void
}

; By t%3 lanes take LDS, private or global memory; out[t] = 5*t+1 and 2 more atomically.
define amdgpu_kernel void @windows(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = alloca [4 x i64], addrspace(5)
  %l = getelementptr [64 x i64], ptr addrspace(3) @shared, i32 0, i32 %t
  %lf = addrspacecast ptr addrspace(3) %l to ptr
  %q = getelementptr [4 x i64], ptr addrspace(5) %a, i32 0, i32 2
  %pf = addrspacecast ptr addrspace(5) %q to ptr
  %o = getelementptr i64, ptr addrspace(1) %out, i32 %t
  %gf = addrspacecast ptr addrspace(1) %o to ptr
  %m = urem i32 %t, 3
  %is0 = icmp eq i32 %m, 0
  %is1 = icmp eq i32 %m, 1
  %s = select i1 %is1, ptr %pf, ptr %gf
  %p = select i1 %is0, ptr %lf, ptr %s
  %x = mul i32 %t, 5
  %y = add i32 %x, 1
  %z = zext i32 %y to i64
  store volatile i64 %z, ptr %p
  %old = atomicrmw add ptr %p, i64 2 monotonic
  %v = load volatile i64, ptr %p
  store i64 %v, ptr addrspace(1) %o
  ret void
}

; Maxima of all lanes and work-groups, by instructions or by loops: of f32, i64 and
; f64 in memory (out[0..]), of i32 in LDS (out[3]); out[4] counts down and wraps.
define amdgpu_kernel void @atomics(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %gg = mul i32 %g, 64
  %n = add i32 %gg, %t
  %f = uitofp i32 %n to float
  %d = uitofp i32 %n to double
  %w = zext i32 %n to i64
  %o1 = getelementptr i64, ptr addrspace(1) %out, i32 1
  %o2 = getelementptr i64, ptr addrspace(1) %out, i32 2
  %o3 = getelementptr i64, ptr addrspace(1) %out, i32 3
  %o4 = getelementptr i64, ptr addrspace(1) %out, i32 4
  %r0 = atomicrmw fmax ptr addrspace(1) %out, float %f syncscope("agent") monotonic
  %r1 = atomicrmw max ptr addrspace(1) %o1, i64 %w syncscope("agent") monotonic
  %r2 = atomicrmw fmax ptr addrspace(1) %o2, double %d syncscope("agent") monotonic
  store i64 0, ptr addrspace(3) @shared
  call void @llvm.amdgcn.s.barrier()
  %r3 = atomicrmw umax ptr addrspace(3) @shared, i32 %n monotonic
  call void @llvm.amdgcn.s.barrier()
  %v3 = load volatile i32, ptr addrspace(3) @shared
  %r4 = atomicrmw umax ptr addrspace(1) %o3, i32 %v3 syncscope("agent") monotonic
  %r5 = atomicrmw udec_wrap ptr addrspace(1) %o4, i32 99 syncscope("agent") monotonic
  ret void
}

; Narrow and unaligned accesses: out[t] of 16 bytes = sext in[t], zext of the next
; byte, sext of a halfword at 2*t+1, a word at 4*t+3; then bytes and halfwords stored.
define amdgpu_kernel void @narrow(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p0 = getelementptr i8, ptr addrspace(1) %in, i32 %t
  %b0 = load i8, ptr addrspace(1) %p0
  %x0 = sext i8 %b0 to i32
  %p1 = getelementptr i8, ptr addrspace(1) %p0, i32 1
  %b1 = load i8, ptr addrspace(1) %p1
  %x1 = zext i8 %b1 to i32
  %t2 = mul i32 %t, 2
  %q2 = getelementptr i8, ptr addrspace(1) %in, i32 %t2
  %p2 = getelementptr i8, ptr addrspace(1) %q2, i32 1
  %h2 = load i16, ptr addrspace(1) %p2, align 1
  %x2 = sext i16 %h2 to i32
  %t4 = mul i32 %t, 4
  %q3 = getelementptr i8, ptr addrspace(1) %in, i32 %t4
  %p3 = getelementptr i8, ptr addrspace(1) %q3, i32 3
  %x3 = load i32, ptr addrspace(1) %p3, align 1
  %v0 = insertelement <4 x i32> poison, i32 %x0, i32 0
  %v1 = insertelement <4 x i32> %v0, i32 %x1, i32 1
  %v2 = insertelement <4 x i32> %v1, i32 %x2, i32 2
  %v3 = insertelement <4 x i32> %v2, i32 %x3, i32 3
  %o = getelementptr <4 x i32>, ptr addrspace(1) %out, i32 %t
  store <4 x i32> %v3, ptr addrspace(1) %o
  %ob = getelementptr i8, ptr addrspace(1) %out, i32 1024
  %ob1 = getelementptr i8, ptr addrspace(1) %ob, i32 %t
  %n1 = trunc i32 %x3 to i8
  store i8 %n1, ptr addrspace(1) %ob1
  %oh = getelementptr i8, ptr addrspace(1) %out, i32 2048
  %oh1 = getelementptr i16, ptr addrspace(1) %oh, i32 %t
  %hi = lshr i32 %x3, 16
  %n2 = trunc i32 %hi to i16
  store i16 %n2, ptr addrspace(1) %oh1
  %n3 = shufflevector <4 x i32> %v3, <4 x i32> poison, <3 x i32> <i32 0, i32 2, i32 3>
  %o3 = getelementptr i8, ptr addrspace(1) %out, i32 3072
  %t12 = mul i32 %t, 12
  %o31 = getelementptr i8, ptr addrspace(1) %o3, i32 %t12
  store <3 x i32> %n3, ptr addrspace(1) %o31, align 4
  ret void
}

; More values alive than registers: out[t] = sum of (j+1)*in[40*t+j]
define amdgpu_kernel void @spills(ptr addrspace(1) %in, ptr addrspace(1) %out) #2 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %b = mul i32 %t, 40
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %b
  %p0 = getelementptr i32, ptr addrspace(1) %p, i32 0
  %v0 = load volatile i32, ptr addrspace(1) %p0
  %p1 = getelementptr i32, ptr addrspace(1) %p, i32 1
  %v1 = load volatile i32, ptr addrspace(1) %p1
  %p2 = getelementptr i32, ptr addrspace(1) %p, i32 2
  %v2 = load volatile i32, ptr addrspace(1) %p2
  %p3 = getelementptr i32, ptr addrspace(1) %p, i32 3
  %v3 = load volatile i32, ptr addrspace(1) %p3
  %p4 = getelementptr i32, ptr addrspace(1) %p, i32 4
  %v4 = load volatile i32, ptr addrspace(1) %p4
  %p5 = getelementptr i32, ptr addrspace(1) %p, i32 5
  %v5 = load volatile i32, ptr addrspace(1) %p5
  %p6 = getelementptr i32, ptr addrspace(1) %p, i32 6
  %v6 = load volatile i32, ptr addrspace(1) %p6
  %p7 = getelementptr i32, ptr addrspace(1) %p, i32 7
  %v7 = load volatile i32, ptr addrspace(1) %p7
  %p8 = getelementptr i32, ptr addrspace(1) %p, i32 8
  %v8 = load volatile i32, ptr addrspace(1) %p8
  %p9 = getelementptr i32, ptr addrspace(1) %p, i32 9
  %v9 = load volatile i32, ptr addrspace(1) %p9
  %p10 = getelementptr i32, ptr addrspace(1) %p, i32 10
  %v10 = load volatile i32, ptr addrspace(1) %p10
  %p11 = getelementptr i32, ptr addrspace(1) %p, i32 11
  %v11 = load volatile i32, ptr addrspace(1) %p11
  %p12 = getelementptr i32, ptr addrspace(1) %p, i32 12
  %v12 = load volatile i32, ptr addrspace(1) %p12
  %p13 = getelementptr i32, ptr addrspace(1) %p, i32 13
  %v13 = load volatile i32, ptr addrspace(1) %p13
  %p14 = getelementptr i32, ptr addrspace(1) %p, i32 14
  %v14 = load volatile i32, ptr addrspace(1) %p14
  %p15 = getelementptr i32, ptr addrspace(1) %p, i32 15
  %v15 = load volatile i32, ptr addrspace(1) %p15
  %p16 = getelementptr i32, ptr addrspace(1) %p, i32 16
  %v16 = load volatile i32, ptr addrspace(1) %p16
  %p17 = getelementptr i32, ptr addrspace(1) %p, i32 17
  %v17 = load volatile i32, ptr addrspace(1) %p17
  %p18 = getelementptr i32, ptr addrspace(1) %p, i32 18
  %v18 = load volatile i32, ptr addrspace(1) %p18
  %p19 = getelementptr i32, ptr addrspace(1) %p, i32 19
  %v19 = load volatile i32, ptr addrspace(1) %p19
  %p20 = getelementptr i32, ptr addrspace(1) %p, i32 20
  %v20 = load volatile i32, ptr addrspace(1) %p20
  %p21 = getelementptr i32, ptr addrspace(1) %p, i32 21
  %v21 = load volatile i32, ptr addrspace(1) %p21
  %p22 = getelementptr i32, ptr addrspace(1) %p, i32 22
  %v22 = load volatile i32, ptr addrspace(1) %p22
  %p23 = getelementptr i32, ptr addrspace(1) %p, i32 23
  %v23 = load volatile i32, ptr addrspace(1) %p23
  %p24 = getelementptr i32, ptr addrspace(1) %p, i32 24
  %v24 = load volatile i32, ptr addrspace(1) %p24
  %p25 = getelementptr i32, ptr addrspace(1) %p, i32 25
  %v25 = load volatile i32, ptr addrspace(1) %p25
  %p26 = getelementptr i32, ptr addrspace(1) %p, i32 26
  %v26 = load volatile i32, ptr addrspace(1) %p26
  %p27 = getelementptr i32, ptr addrspace(1) %p, i32 27
  %v27 = load volatile i32, ptr addrspace(1) %p27
  %p28 = getelementptr i32, ptr addrspace(1) %p, i32 28
  %v28 = load volatile i32, ptr addrspace(1) %p28
  %p29 = getelementptr i32, ptr addrspace(1) %p, i32 29
  %v29 = load volatile i32, ptr addrspace(1) %p29
  %p30 = getelementptr i32, ptr addrspace(1) %p, i32 30
  %v30 = load volatile i32, ptr addrspace(1) %p30
  %p31 = getelementptr i32, ptr addrspace(1) %p, i32 31
  %v31 = load volatile i32, ptr addrspace(1) %p31
  %p32 = getelementptr i32, ptr addrspace(1) %p, i32 32
  %v32 = load volatile i32, ptr addrspace(1) %p32
  %p33 = getelementptr i32, ptr addrspace(1) %p, i32 33
  %v33 = load volatile i32, ptr addrspace(1) %p33
  %p34 = getelementptr i32, ptr addrspace(1) %p, i32 34
  %v34 = load volatile i32, ptr addrspace(1) %p34
  %p35 = getelementptr i32, ptr addrspace(1) %p, i32 35
  %v35 = load volatile i32, ptr addrspace(1) %p35
  %p36 = getelementptr i32, ptr addrspace(1) %p, i32 36
  %v36 = load volatile i32, ptr addrspace(1) %p36
  %p37 = getelementptr i32, ptr addrspace(1) %p, i32 37
  %v37 = load volatile i32, ptr addrspace(1) %p37
  %p38 = getelementptr i32, ptr addrspace(1) %p, i32 38
  %v38 = load volatile i32, ptr addrspace(1) %p38
  %p39 = getelementptr i32, ptr addrspace(1) %p, i32 39
  %v39 = load volatile i32, ptr addrspace(1) %p39
  %s40 = add i32 0, 0
  %m39 = mul i32 %v39, 40
  %s39 = add i32 %s40, %m39
  %m38 = mul i32 %v38, 39
  %s38 = add i32 %s39, %m38
  %m37 = mul i32 %v37, 38
  %s37 = add i32 %s38, %m37
  %m36 = mul i32 %v36, 37
  %s36 = add i32 %s37, %m36
  %m35 = mul i32 %v35, 36
  %s35 = add i32 %s36, %m35
  %m34 = mul i32 %v34, 35
  %s34 = add i32 %s35, %m34
  %m33 = mul i32 %v33, 34
  %s33 = add i32 %s34, %m33
  %m32 = mul i32 %v32, 33
  %s32 = add i32 %s33, %m32
  %m31 = mul i32 %v31, 32
  %s31 = add i32 %s32, %m31
  %m30 = mul i32 %v30, 31
  %s30 = add i32 %s31, %m30
  %m29 = mul i32 %v29, 30
  %s29 = add i32 %s30, %m29
  %m28 = mul i32 %v28, 29
  %s28 = add i32 %s29, %m28
  %m27 = mul i32 %v27, 28
  %s27 = add i32 %s28, %m27
  %m26 = mul i32 %v26, 27
  %s26 = add i32 %s27, %m26
  %m25 = mul i32 %v25, 26
  %s25 = add i32 %s26, %m25
  %m24 = mul i32 %v24, 25
  %s24 = add i32 %s25, %m24
  %m23 = mul i32 %v23, 24
  %s23 = add i32 %s24, %m23
  %m22 = mul i32 %v22, 23
  %s22 = add i32 %s23, %m22
  %m21 = mul i32 %v21, 22
  %s21 = add i32 %s22, %m21
  %m20 = mul i32 %v20, 21
  %s20 = add i32 %s21, %m20
  %m19 = mul i32 %v19, 20
  %s19 = add i32 %s20, %m19
  %m18 = mul i32 %v18, 19
  %s18 = add i32 %s19, %m18
  %m17 = mul i32 %v17, 18
  %s17 = add i32 %s18, %m17
  %m16 = mul i32 %v16, 17
  %s16 = add i32 %s17, %m16
  %m15 = mul i32 %v15, 16
  %s15 = add i32 %s16, %m15
  %m14 = mul i32 %v14, 15
  %s14 = add i32 %s15, %m14
  %m13 = mul i32 %v13, 14
  %s13 = add i32 %s14, %m13
  %m12 = mul i32 %v12, 13
  %s12 = add i32 %s13, %m12
  %m11 = mul i32 %v11, 12
  %s11 = add i32 %s12, %m11
  %m10 = mul i32 %v10, 11
  %s10 = add i32 %s11, %m10
  %m9 = mul i32 %v9, 10
  %s9 = add i32 %s10, %m9
  %m8 = mul i32 %v8, 9
  %s8 = add i32 %s9, %m8
  %m7 = mul i32 %v7, 8
  %s7 = add i32 %s8, %m7
  %m6 = mul i32 %v6, 7
  %s6 = add i32 %s7, %m6
  %m5 = mul i32 %v5, 6
  %s5 = add i32 %s6, %m5
  %m4 = mul i32 %v4, 5
  %s4 = add i32 %s5, %m4
  %m3 = mul i32 %v3, 4
  %s3 = add i32 %s4, %m3
  %m2 = mul i32 %v2, 3
  %s2 = add i32 %s3, %m2
  %m1 = mul i32 %v1, 2
  %s1 = add i32 %s2, %m1
  %m0 = mul i32 %v0, 1
  %s0 = add i32 %s1, %m0
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %s0, ptr addrspace(1) %o
  ret void
}

attributes #0 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-flat-scratch-init" "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" }
attributes #1 = { noinline nounwind norecurse  "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-flat-scratch-init" "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" }
attributes #3 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-flat-scratch-init" "amdgpu-flat-work-group-size"="64,64" }
attributes #2 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-flat-scratch-init" "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" "amdgpu-num-vgpr"="12" }
